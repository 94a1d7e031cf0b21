package importer

import (
	"context"
	"errors"
	"io"
	"iter"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"example.com/watertight/lab/catalog"
	checkoutv1 "example.com/watertight/proto/checkout/v1"
	inventoryv1 "example.com/watertight/proto/inventory/v1"
	moneyv1 "example.com/watertight/proto/money/v1"
	recsv1 "example.com/watertight/proto/recs/v1"
	searchv1 "example.com/watertight/proto/search/v1"
)

// Limits of one message. The counts are the contracts'; the bytes keep well below gRPC's 4 MiB, which 500 of the longest
// baskets would pass.
const (
	maxProducts = 500
	maxPrices   = 1000
	maxBaskets  = 500
	maxCounts   = 1000
	maxBytes    = 1 << 20
	// The contract's limit for one basket.
	maxBasketProducts = 1200
)

func sendProducts(c catalog.Catalog) attempt {
	return sendAll(maxProducts,
		func(yield func(*searchv1.Product) bool) {
			for _, p := range c.Products {
				if !yield(&searchv1.Product{
					Id: p.ID, Name: p.Name, Description: p.Description, Category: p.Category,
					Price:      &moneyv1.Money{Currency: c.Currency, Minor: p.PriceMinor},
					Popularity: p.Sold,
				}) {
					return
				}
			}
		},
		func(conn *grpc.ClientConn) opener[searchv1.ImportProductsRequest, searchv1.ImportProductsResponse] {
			return searchv1.NewSearchServiceClient(conn).ImportProducts
		},
		func(batch []*searchv1.Product) *searchv1.ImportProductsRequest {
			return &searchv1.ImportProductsRequest{Products: batch}
		},
		(*searchv1.ImportProductsResponse).GetProducts)
}

func sendPrices(c catalog.Catalog) attempt {
	return sendAll(maxPrices,
		func(yield func(*checkoutv1.Price) bool) {
			for _, p := range c.Products {
				if !yield(&checkoutv1.Price{
					ProductId: p.ID, Name: p.Name, Price: &moneyv1.Money{Currency: c.Currency, Minor: p.PriceMinor},
				}) {
					return
				}
			}
		},
		func(conn *grpc.ClientConn) opener[checkoutv1.ImportPricesRequest, checkoutv1.ImportPricesResponse] {
			return checkoutv1.NewCheckoutServiceClient(conn).ImportPrices
		},
		func(batch []*checkoutv1.Price) *checkoutv1.ImportPricesRequest {
			return &checkoutv1.ImportPricesRequest{Prices: batch}
		},
		(*checkoutv1.ImportPricesResponse).GetPrices)
}

func sendBaskets(c catalog.Catalog) attempt {
	return sendAll(maxBaskets,
		func(yield func(*recsv1.Basket) bool) {
			for _, b := range c.Baskets {
				if oversized(b) {
					continue
				}
				ids := make([]string, len(b.Products))
				for i, p := range b.Products {
					ids[i] = c.Products[p].ID
				}
				if !yield(&recsv1.Basket{Id: b.ID, ProductIds: ids}) {
					return
				}
			}
		},
		func(conn *grpc.ClientConn) opener[recsv1.ImportBasketsRequest, recsv1.ImportBasketsResponse] {
			return recsv1.NewRecsServiceClient(conn).ImportBaskets
		},
		func(batch []*recsv1.Basket) *recsv1.ImportBasketsRequest {
			return &recsv1.ImportBasketsRequest{Baskets: batch}
		},
		(*recsv1.ImportBasketsResponse).GetBaskets)
}

func sendStock(c catalog.Catalog) attempt {
	return sendAll(maxCounts,
		func(yield func(*inventoryv1.StockCount) bool) {
			for _, p := range c.Products {
				if !yield(&inventoryv1.StockCount{ProductId: p.ID, Available: p.Stock}) {
					return
				}
			}
		},
		func(conn *grpc.ClientConn) opener[inventoryv1.ImportStockRequest, inventoryv1.ImportStockResponse] {
			return inventoryv1.NewInventoryServiceClient(conn).ImportStock
		},
		func(batch []*inventoryv1.StockCount) *inventoryv1.ImportStockRequest {
			return &inventoryv1.ImportStockRequest{Counts: batch}
		},
		(*inventoryv1.ImportStockResponse).GetProducts)
}

// oversized says whether a basket is too long for the contract. So many products tell nothing of what goes together.
func oversized(b catalog.Basket) bool {
	return len(b.Products) > maxBasketProducts
}

func countOversized(baskets []catalog.Basket) int {
	n := 0
	for _, b := range baskets {
		if oversized(b) {
			n++
		}
	}
	return n
}

// opener is the generated method that opens an import stream.
type opener[Request, Response any] func(context.Context, ...grpc.CallOption) (grpc.ClientStreamingClient[Request, Response], error)

// sendAll makes an attempt of the five things that differ between the services.
func sendAll[Item proto.Message, Request, Response any](
	limit int,
	items iter.Seq[Item],
	method func(*grpc.ClientConn) opener[Request, Response],
	request func([]Item) *Request,
	stored func(*Response) int64,
) attempt {
	return func(ctx context.Context, conn *grpc.ClientConn, sent func(int)) (int64, error) {
		// Leaving early must end the stream on both sides.
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		stream, err := method(conn)(ctx)
		if err != nil {
			return 0, err
		}
		for batch := range batches(items, limit) {
			err := stream.Send(request(batch))
			if errors.Is(err, io.EOF) {
				break // the server has ended the stream; its answer below says why
			}
			if err != nil {
				return 0, err
			}
			sent(len(batch))
		}
		response, err := stream.CloseAndRecv()
		if err != nil {
			return 0, err
		}
		return stored(response), nil
	}
}

// batches groups items into messages of at most limit items and about maxBytes bytes.
func batches[Item proto.Message](items iter.Seq[Item], limit int) iter.Seq[[]Item] {
	return func(yield func([]Item) bool) {
		var batch []Item
		bytes := 0
		for item := range items {
			size := proto.Size(item)
			if len(batch) == limit || len(batch) > 0 && bytes+size > maxBytes {
				if !yield(batch) {
					return
				}
				batch, bytes = nil, 0
			}
			batch = append(batch, item)
			bytes += size
		}
		if len(batch) > 0 {
			yield(batch)
		}
	}
}
