package inventory

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"example.com/watertight/platform/rpcerr"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
)

// GetStock answers with the stock of the named products in the order asked for; unknown ids are left out.
func (s *Service) GetStock(ctx context.Context, req *inventoryv1.GetStockRequest) (*inventoryv1.GetStockResponse, error) {
	levels, err := s.store.levels(ctx, req.GetProductIds())
	if err != nil {
		return nil, err
	}
	return &inventoryv1.GetStockResponse{Levels: levels}, nil
}

// ImportStock sets how many pieces are available, each message in a transaction of its own. What is reserved stays.
func (s *Service) ImportStock(stream grpc.ClientStreamingServer[inventoryv1.ImportStockRequest, inventoryv1.ImportStockResponse]) error {
	ctx := stream.Context()
	stored := int64(0)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&inventoryv1.ImportStockResponse{Products: stored})
		}
		if err != nil {
			return err // a status already
		}
		select {
		case <-s.draining:
			return rpcerr.New(codes.Unavailable, rpcerr.Draining, "the service is about to stop; send the counts again", rpcerr.RetryAfter(time.Second))
		default:
		}
		if err := s.store.set(ctx, req.GetCounts()); err != nil {
			return err
		}
		stored += int64(len(req.GetCounts()))
	}
}
