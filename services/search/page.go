package search

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/binary"
	"math"

	"example.com/watertight/platform/rpcerr"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search/index"
)

const (
	defaultPageSize = 20
	maxPageSize     = 100 // also in the contract; a page of the greatest products is under 1 MiB
	sumSize         = 8
)

// A page token is base64url of: a checksum of 8 bytes; the offset, a uvarint; the id of the last product shown. The
// checksum covers the rest, the query and the category. It finds tokens of other queries and tokens that were damaged or
// made up by guessing. It is no secret: who forges one gets another part of the same public result.

// encodeToken returns the token that goes on at p, or "" for the end of the result.
func encodeToken(req *searchv1.SearchProductsRequest, p index.Position) string {
	if p == (index.Position{}) {
		return ""
	}
	rest := append(binary.AppendUvarint(nil, uint64(p.Offset)), p.ID...)
	return base64.RawURLEncoding.EncodeToString(append(checksum(req, rest), rest...))
}

// decodeToken returns where the request's page begins. A token that was not made for this query is INVALID_ARGUMENT.
func decodeToken(req *searchv1.SearchProductsRequest) (index.Position, error) {
	if req.GetPageToken() == "" {
		return index.Position{}, nil
	}
	refused := rpcerr.Invalid("page_token", "not a token of this query and category")
	raw, err := base64.RawURLEncoding.Strict().DecodeString(req.GetPageToken())
	if err != nil || len(raw) < sumSize {
		return index.Position{}, refused
	}
	sum, rest := raw[:sumSize], raw[sumSize:]
	offset, n := binary.Uvarint(rest)
	if subtle.ConstantTimeCompare(sum, checksum(req, rest)) != 1 || n <= 0 || offset > math.MaxInt32 {
		return index.Position{}, refused
	}
	return index.Position{ID: string(rest[n:]), Offset: int(offset)}, nil
}

func checksum(req *searchv1.SearchProductsRequest, rest []byte) []byte {
	h := sha256.New()
	for _, part := range [][]byte{[]byte("search page 1"), []byte(req.GetQuery()), []byte(req.GetCategory()), rest} {
		// The length keeps parts apart that would read the same when joined.
		h.Write(binary.AppendUvarint(nil, uint64(len(part))))
		h.Write(part)
	}
	return h.Sum(nil)[:sumSize]
}
