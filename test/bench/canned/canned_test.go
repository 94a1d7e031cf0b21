package canned

import (
	"testing"

	recsv1 "example.com/watertight/proto/recs/v1"
)

func TestServices_FailTheShareOfCallsThatTheyAreToldTo(t *testing.T) {
	s := New()
	for _, percent := range []int{0, 1, 50, 100} {
		s.FailRecs(percent)
		failed := 0
		for n := range 1000 {
			if _, err := s.Recommend(t.Context(), &recsv1.RecommendRequest{ProductId: ID(n)}); err != nil {
				failed++
			}
		}
		if failed != 10*percent {
			t.Errorf("%d of 1000 calls failed, want %d %%", failed, percent)
		}
	}
}
