package main

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"example.com/watertight/lab/size"
)

// scalePage is docs/scale.md.
func scalePage(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// quotation is a command of the page, and what it quotes of its output.
type quotation struct {
	args  []string
	lines []string
}

func quotations(page string) []quotation {
	var all []quotation
	for line := range strings.Lines(page) {
		text, quoted := strings.CutPrefix(line, "    ")
		if !quoted {
			continue
		}
		if command, is := strings.CutPrefix(text, "$ lab "); is {
			all = append(all, quotation{args: strings.Fields(command)})
			continue
		}
		if len(all) > 0 {
			last := &all[len(all)-1]
			last.lines = append(last.lines, squeezed(text))
		}
	}
	return all
}

// squeezed has one space wherever there were several.
func squeezed(text string) string { return strings.Join(strings.Fields(text), " ") }

func TestScale_CommandsPrintWhatThePageQuotes(t *testing.T) {
	all := quotations(scalePage(t))
	if len(all) < 8 {
		t.Fatalf("got %d commands, want those of the page", len(all))
	}
	for _, q := range all {
		t.Run(strings.Join(q.args, " "), func(t *testing.T) {
			if len(q.lines) == 0 {
				t.Error("the page quotes nothing of it")
			}
			var out, errOut bytes.Buffer
			if err := run(t.Context(), q.args, process{out: &out, errOut: &errOut}); err != nil {
				t.Fatal(err)
			}
			printed := squeezed(strings.ReplaceAll(out.String(), "\n", " "))
			for _, line := range q.lines {
				if !strings.Contains(printed, line) {
					t.Errorf("it does not print %q, but\n%s", line, &out)
				}
			}
		})
	}
}

// The rows of the table of shuffle sharding: n, k, subsets, and three shares in per cent.
func TestScale_ShardsAreWhatTheFormulasGive(t *testing.T) {
	rows := regexp.MustCompile(`(?m)^\| (\d+) \| (\d+) \| (\S+) \| (\S+) % \| (\S+) % \| (\S+) % \|$`).FindAllStringSubmatch(scalePage(t), -1)
	if len(rows) < 10 {
		t.Fatalf("got %d rows, want those of the page", len(rows))
	}
	for _, row := range rows {
		n, _ := strconv.Atoi(row[1]) // the pattern has digits
		k, _ := strconv.Atoi(row[2])
		f := size.ShuffleShards(n, k)
		want := []string{fmt.Sprintf("%.6g", f.Subsets)}
		for _, share := range []float64{f.Disjoint, f.Same, float64(k) / float64(n)} {
			want = append(want, fmt.Sprintf("%.4g", 100*share))
		}
		if got := row[3:7]; strings.Join(got, " ") != strings.Join(want, " ") {
			t.Errorf("%d of %d: the page says %v, want %v", k, n, got, want)
		}
	}
}
