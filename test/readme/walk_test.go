package readme_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/test/readme"
)

func TestSteps_AreTheCommandsOfTheConsoleBlocks(t *testing.T) {
	page := "text\n```console\n$ echo a\na\n$ x=1\n$ printf 'b\\n\\nc'\nb\n\nc\n```\n    $ not this\n```sh\n$ nor this\n```\n```console\n$ last\n```\n"
	got, err := readme.Steps(page)
	want := []readme.Step{{3, "echo a", "a"}, {5, "x=1", ""}, {6, "printf 'b\\n\\nc'", "b\n\nc"}, {16, "last", ""}}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, broken := range []string{"```console\noutput\n```\n", "```console\n$ x\n"} {
		if _, err := readme.Steps(broken); err == nil {
			t.Errorf("%q: no error", broken)
		}
	}
}

func TestMatches_TakesTheEllipsisForWhatDiffers(t *testing.T) {
	for _, tc := range []struct {
		want, printed string
		match         bool
	}{
		{"a", "a\n", true}, {"a", "b\n", false}, {"a", "a\nb\n", false}, {"", "", true}, {"", "x", false},
		{`{"id":"…","n":1}`, `{"id":"77","n":1}`, true}, {`{"id":"…","n":1}`, `{"id":"77","n":2}`, false}, {"a…c", "ab\nbc", false},
		{"a\n…", "a\nb\nc\n", true}, {"a\n…", "a\n", true}, {"a\n…", "ab\n", false}, {"…\nz", "a\nb\nz", true}, {"a\n…\nz", "a\nz", true},
		{"a\n…\nz", "a\nq\nz", true}, {"a\n…\nz", "a\nqz", false}, {"a", "a\r\n", true}, {"a.c", "abc", false},
	} {
		if got := (readme.Step{Want: tc.want}).Matches(tc.printed); got != tc.match {
			t.Errorf("%q printed for %q: got %v, want %v", tc.printed, tc.want, got, tc.match)
		}
	}
}
