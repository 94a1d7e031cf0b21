package cluster

import (
	"net/http"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestKeeper_CountsReplacedPodsAsWellAsRestarts(t *testing.T) {
	shop, client := newShop(t, http.NotFoundHandler(), pod("recs", "recs-1", 2, ""), pod("checkout", "checkout-1", 0, ""))
	keeper := shop.Keeper()
	count := func() map[string]int {
		t.Helper()
		counts, err := keeper.Restarts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return counts
	}
	before := count()
	pods := client.CoreV1().Pods(namespace)
	if err := pods.Delete(t.Context(), "recs-1", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := pods.Create(t.Context(), pod("recs", "recs-2", 0, ""), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	after := count()
	if got := after["recs"] - before["recs"]; got != 1 {
		t.Errorf("a pod that took another's place counts %d, want 1", got)
	}
	if _, err := pods.UpdateStatus(t.Context(), pod("recs", "recs-2", 3, ""), metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got := count()["recs"] - after["recs"]; got != 3 {
		t.Errorf("three restarts count %d", got)
	}
	if got := after["checkout"] - before["checkout"]; got != 0 {
		t.Errorf("checkout counts %d, and nothing happened to it", got)
	}
}
