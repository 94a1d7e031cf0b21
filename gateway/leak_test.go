package gateway_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain also checks that no goroutine outlives the tests: streams, watches and calls beside a page all end.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
