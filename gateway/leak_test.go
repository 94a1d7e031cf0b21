package gateway_test

import (
	"testing"

	"go.uber.org/goleak"

	"example.com/watertight/platform/shard"
)

// TestMain also checks that no goroutine outlives the tests: streams, watches and calls beside a page all end.
func TestMain(m *testing.M) {
	shard.Register()
	goleak.VerifyTestMain(m)
}
