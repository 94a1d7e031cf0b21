package gateway

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"example.com/watertight/gateway/problem"
	"example.com/watertight/gateway/report"
	"example.com/watertight/gateway/shop"
	"example.com/watertight/gateway/storefront"
	"example.com/watertight/platform/fault"
	"example.com/watertight/platform/rpcerr"
)

// document is as much of OpenAPI as these tests look at. That it is valid, and that answers are as it says, is tested in
// test/openapi.
type document struct {
	Paths      map[string]map[string]any
	Components struct {
		Schemas map[string]struct {
			Enum       []string
			Properties map[string]struct{ Enum []string }
		}
	}
}

func readDocument(t *testing.T) document {
	t.Helper()
	var d document
	if err := json.Unmarshal(openAPIDocument, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOpenAPI_HasEveryRouteAndNoOther(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	a := &api{Deps: Deps{
		Shop: shop.New(shop.Backends{Log: log}), Operations: &Operations{faults: fault.NewStore(nil, log)}, Draining: make(chan struct{}),
		Worker: func(string, func(context.Context) error) {},
	}, cfg: Config{MaxBridgeStreams: 1}}
	if err := a.manBridge(); err != nil {
		t.Fatal(err)
	}
	pages, err := storefront.New(a.Shop, storefront.Budgets{})
	if err != nil {
		t.Fatal(err)
	}
	var routed []string
	for _, r := range slices.Concat(a.routes(), pages.Routes()) {
		if r.Path == "/" { // what nothing else answers
			continue
		}
		routed = append(routed, r.Method+" "+strings.TrimSuffix(r.Path, "{$}"))
	}
	var documented []string
	for path, methods := range readDocument(t).Paths {
		for method := range methods {
			documented = append(documented, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(routed)
	slices.Sort(documented)
	if diff := cmp.Diff(routed, documented); diff != "" {
		t.Errorf("routes (-routed +documented):\n%s", diff)
	}
}

// reasons reads the constants of package rpcerr, so that a new one cannot be forgotten here.
func reasons(t *testing.T) []string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../platform/rpcerr/rpcerr.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		if c, ok := n.(*ast.ValueSpec); ok && len(c.Values) == 1 && c.Names[0].IsExported() && c.Names[0].Name != "Domain" {
			if lit, ok := c.Values[0].(*ast.BasicLit); ok && lit.Kind == token.STRING {
				reason, err := strconv.Unquote(lit.Value)
				if err != nil {
					t.Fatal(err)
				}
				found = append(found, reason)
			}
		}
		return true
	})
	if len(found) < 10 {
		t.Fatalf("only %d reasons found: %v", len(found), found)
	}
	return found
}

func TestOpenAPI_KnowsEveryProblemCodeAndNoOther(t *testing.T) {
	codesOf := map[string]bool{problem.CodeMethodNotAllowed: true, problem.CodeCrossOrigin: true, problem.CodeCancelled: true}
	for _, reason := range reasons(t) {
		if reason == rpcerr.ShardDown { // becomes UNAVAILABLE before anybody sees it
			continue
		}
		codesOf[problem.FromError(rpcerr.New(codes.Unknown, reason, "x")).Code] = true
	}
	for code := codes.Canceled; code <= codes.Unauthenticated; code++ {
		codesOf[problem.FromError(status.Error(code, "x")).Code] = true
	}
	var want []string
	for code := range codesOf {
		want = append(want, code)
	}
	got := readDocument(t).Components.Schemas["Problem"].Properties["code"].Enum
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("codes (-answered +documented):\n%s", diff)
	}
}

func TestOpenAPI_KnowsWhatCanBeMadeSickAndHow(t *testing.T) {
	schemas := readDocument(t).Components.Schemas
	var kinds []string
	for _, k := range fault.Kinds() {
		kinds = append(kinds, string(k))
	}
	if diff := cmp.Diff(kinds, schemas["FaultKind"].Enum); diff != "" {
		t.Errorf("kinds (-known +documented):\n%s", diff)
	}
	var document struct {
		Components struct {
			Parameters map[string]struct{ Schema struct{ Enum []string } }
		}
	}
	if err := json.Unmarshal(openAPIDocument, &document); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(faultTargets(), document.Components.Parameters["Service"].Schema.Enum); diff != "" {
		t.Errorf("services (-known +documented):\n%s", diff)
	}
}

func TestTraffic_CountsAnswersByWhatTheyMean(t *testing.T) {
	var tr traffic
	for _, httpStatus := range []int{200, 204, 303, 0, 400, 404, 422, 499, 429, 503, 500, 504} {
		tr.begin()(httpStatus)
	}
	stream, request := tr.begin(), tr.begin()
	want := report.Gateway{InFlight: 1, EventStreams: 1, Answers: map[string]uint64{report.AnswerOK: 4, report.AnswerRefused: 4, report.AnswerShed: 2, report.AnswerFailed: 2}}
	if diff := cmp.Diff(want, tr.status(1)); diff != "" {
		t.Errorf("traffic (-want +got):\n%s", diff)
	}
	stream(http.StatusOK)
	request(http.StatusOK)
	if got := tr.status(0); got.InFlight != 0 {
		t.Errorf("%d in flight at the end", got.InFlight)
	}
}
