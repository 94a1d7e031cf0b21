package search

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"example.com/watertight/platform/rpcerr"
	searchv1 "example.com/watertight/proto/search/v1"
	"example.com/watertight/services/search/index"
)

func TestPageToken_IsReadBackForItsQueryAlone(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		req := &searchv1.SearchProductsRequest{Query: rapid.StringN(0, 200, -1).Draw(t, "query"), Category: rapid.StringN(0, 64, -1).Draw(t, "category")}
		p := index.Position{ID: rapid.StringN(1, 64, -1).Draw(t, "id"), Offset: rapid.IntRange(1, 1<<31-1).Draw(t, "offset")}
		req.PageToken = encodeToken(req, p)
		if len(req.PageToken) > 1024 {
			t.Fatalf("token of %d characters, the contract allows 1024", len(req.PageToken))
		}
		if got, err := decodeToken(req); err != nil || got != p {
			t.Fatalf("got %+v, %v, want %+v", got, err, p)
		}
		req.Query += "x"
		if got, err := decodeToken(req); err == nil {
			t.Fatalf("another query: got %+v, want an error", got)
		}
	})
}

func FuzzDecodeToken(f *testing.F) {
	req := &searchv1.SearchProductsRequest{Query: "heart", Category: "Home"}
	f.Add("heart", "Home", encodeToken(req, index.Position{ID: "85123A", Offset: 20}))
	f.Add("heart", "", encodeToken(req, index.Position{ID: "85123A", Offset: 20}))
	f.Add("", "", "")
	f.Add("", "", "AAAAAAAAAAA")
	f.Add("", "", "====")
	f.Fuzz(func(t *testing.T, query, category, token string) {
		req := &searchv1.SearchProductsRequest{Query: query, Category: category, PageToken: token}
		p, err := decodeToken(req)
		if err != nil {
			if fields := rpcerr.Fields(err); status.Code(err) != codes.InvalidArgument || len(fields) != 1 || fields[0].GetField() != "page_token" {
				t.Fatalf("got %v, want INVALID_ARGUMENT naming page_token", err)
			}
			return
		}
		if again := encodeToken(req, p); again != token {
			t.Fatalf("%q decodes to %+v, which encodes to %q", token, p, again)
		}
	})
}
