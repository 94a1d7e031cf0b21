package search

// The gRPC methods. Requests have been held against the contract before they come here.

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"example.com/watertight/platform/rpcerr"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search/index"
)

// SearchProducts implements the contract from memory.
func (s *Service) SearchProducts(_ context.Context, req *searchv1.SearchProductsRequest) (*searchv1.SearchProductsResponse, error) {
	after, err := decodeToken(req)
	if err != nil {
		return nil, err
	}
	size := int(req.GetPageSize())
	switch {
	case size == 0:
		size = defaultPageSize
	case size < 0 || size > maxPageSize:
		return nil, rpcerr.Invalid("page_size", "must be between 0 and 100")
	}
	resp := &searchv1.SearchProductsResponse{}
	err = s.catalog.read(func(x *index.Index) error {
		found, err := x.Search(index.Query{Text: req.GetQuery(), Category: req.GetCategory(), After: after, Limit: size})
		resp.Products, resp.Total, resp.Categories = found.Products, int64(found.Total), found.Categories
		resp.NextPageToken = encodeToken(req, found.Next)
		return err
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// GetProducts implements the contract from memory. Ids are found in any case.
func (s *Service) GetProducts(_ context.Context, req *searchv1.GetProductsRequest) (*searchv1.GetProductsResponse, error) {
	resp := &searchv1.GetProductsResponse{}
	err := s.catalog.read(func(x *index.Index) error {
		for _, id := range req.GetIds() {
			if p := x.Get(id); p != nil {
				resp.Products = append(resp.Products, p)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return resp, nil
}

// ImportProducts implements the contract: one transaction a message. The answer comes when this replica's searches find
// what was imported; the others follow within the refresh interval and the time their index takes. A stream that is under way
// when the drain begins ends with its next message, and the importer sends all of it again, elsewhere.
func (s *Service) ImportProducts(stream grpc.ClientStreamingServer[searchv1.ImportProductsRequest, searchv1.ImportProductsResponse]) error {
	ctx := stream.Context()
	resp := &searchv1.ImportProductsResponse{}
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		select {
		case <-s.draining:
			return rpcerr.New(codes.Unavailable, rpcerr.Draining, "the service is about to stop; send the products again", rpcerr.RetryAfter(time.Second))
		default:
		}
		if err := s.catalog.store.put(ctx, req.GetProducts()); err != nil {
			return err
		}
		resp.Products += int64(len(req.GetProducts()))
	}
	if err := s.catalog.refresh(ctx); err != nil {
		return err
	}
	return stream.SendAndClose(resp)
}
