package checkout

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc"

	"example.com/watertight/platform/rpcerr"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
)

// listedPrice is one product of the price list.
type listedPrice struct {
	productID string
	price
}

// ImportPrices stores each message in a transaction of its own.
func (s *Service) ImportPrices(stream grpc.ClientStreamingServer[checkoutv1.ImportPricesRequest, checkoutv1.ImportPricesResponse]) error {
	ctx := stream.Context()
	received := int64(0)
	for {
		req, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&checkoutv1.ImportPricesResponse{Prices: received})
		}
		if err != nil {
			return err // a status already
		}
		select {
		case <-s.draining:
			return errDraining()
		default:
		}
		prices, err := parsePrices(req.GetPrices())
		if err != nil {
			return err
		}
		if err := s.store.putPrices(ctx, prices); err != nil {
			return err
		}
		received += int64(len(req.GetPrices()))
	}
}

// parsePrices checks what the contract cannot say and returns the prices sorted by product; of one product's several
// prices the last counts.
func parsePrices(sent []*checkoutv1.Price) ([]listedPrice, error) {
	prices := make([]listedPrice, 0, len(sent))
	at := make(map[string]int, len(sent))
	for i, p := range sent {
		if !storable(p.GetProductId()) {
			return nil, rpcerr.Invalid(fmt.Sprintf("prices[%d].product_id", i), notStorable)
		}
		if !storable(p.GetName()) {
			return nil, rpcerr.Invalid(fmt.Sprintf("prices[%d].name", i), notStorable)
		}
		listed := listedPrice{p.GetProductId(), price{name: p.GetName(), currency: p.GetPrice().GetCurrency(), minor: p.GetPrice().GetMinor()}}
		if known, repeated := at[listed.productID]; repeated {
			prices[known] = listed
			continue
		}
		at[listed.productID] = len(prices)
		prices = append(prices, listed)
	}
	slices.SortFunc(prices, func(a, b listedPrice) int { return strings.Compare(a.productID, b.productID) })
	return prices, nil
}
