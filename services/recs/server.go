package recs

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"example.com/watertight/platform/rpcerr"
	recsv1 "example.com/watertight/proto/recs/v1"
	"example.com/watertight/services/recs/similarity"
)

// defaultLimit is what a limit of 0 means, by the contract.
const defaultLimit = 8

// Recommend answers from memory.
func (s *Service) Recommend(_ context.Context, req *recsv1.RecommendRequest) (*recsv1.RecommendResponse, error) {
	model := s.served.Load()
	if model == nil {
		return nil, rpcerr.New(codes.Unavailable, rpcerr.Unavailable, "recommendations are not loaded yet", rpcerr.RetryAfter(time.Second))
	}
	limit := min(int(req.GetLimit()), similarity.MaxNeighbours)
	if limit <= 0 {
		limit = defaultLimit
	}
	if similar := model.Similar(req.GetProductId(), limit); len(similar) > 0 {
		return response(similar, recsv1.Basis_BASIS_BOUGHT_TOGETHER), nil
	}
	return response(model.Popular(req.GetProductId(), limit), recsv1.Basis_BASIS_POPULAR), nil
}

// response allocates its messages in one piece: there may be 50, and this is the service's whole work.
func response(recommended []similarity.Recommendation, basis recsv1.Basis) *recsv1.RecommendResponse {
	messages := make([]recsv1.Recommendation, len(recommended))
	list := make([]*recsv1.Recommendation, len(recommended))
	for i, r := range recommended {
		messages[i].ProductId, messages[i].Score = r.ProductID, r.Score
		list[i] = &messages[i]
	}
	return &recsv1.RecommendResponse{Recommendations: list, Basis: basis}
}

// ImportBaskets stores each message in a transaction of its own and makes a new model when the stream ends. When it
// fails in between, what was stored before stays, and is learned from later.
func (s *Service) ImportBaskets(stream grpc.ClientStreamingServer[recsv1.ImportBasketsRequest, recsv1.ImportBasketsResponse]) error {
	ctx := stream.Context()
	received := int64(0)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err // a status already
		}
		select {
		case <-s.draining:
			return rpcerr.New(codes.Unavailable, rpcerr.Draining, "the service is about to stop; send the baskets again", rpcerr.RetryAfter(time.Second))
		default:
		}
		if err := s.store.put(ctx, req.GetBaskets()); err != nil {
			return err
		}
		received += int64(len(req.GetBaskets()))
	}
	if err := s.learn(ctx); err != nil {
		return err
	}
	return stream.SendAndClose(&recsv1.ImportBasketsResponse{Baskets: received, Products: int64(s.served.Load().Recommendable())})
}
