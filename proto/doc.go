// Package proto holds the contracts between the parts of the shop: one folder per service and version, the generated code
// beside the .proto. Limits are stated here, as protovalidate rules of the kinds that platform/rpc/contract understands, and enforced by
// the service that owns the data.
package proto
