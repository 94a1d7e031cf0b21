//go:build unix

package observability

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const dashboardsDir = "helm/watertight/dashboards"

// dashboard is what the lint looks at of a Grafana dashboard.
type dashboard struct {
	UID         string   `json:"uid"`
	Title       string   `json:"title"`
	Description string   `json:"description"`
	Tags        []string `json:"tags"`
	Panels      []panel  `json:"panels"`
	Templating  struct {
		List []struct {
			Name  string `json:"name"`
			Type  string `json:"type"`
			Query string `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	GridPos     struct{ X, Y, W, H int } `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

// dashboards returns those of the chart, by file name.
func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, dashboardsDir, "*.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	out := map[string]dashboard{}
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var d dashboard
		if err := json.Unmarshal(content, &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		out[filepath.Base(file)] = d
	}
	return out
}

// resolve puts something that can be parsed in the place of Grafana's own variables.
var resolve = strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$__interval", "1m")

func TestDashboards_AskForMetricsThatThereAre(t *testing.T) {
	metrics := scrape(t)
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				where := file + ": " + p.Title
				found := selectors(t, where, resolve.Replace(target.Expr))
				if len(found) == 0 {
					t.Errorf("%s: a query that reads nothing: %s", where, target.Expr)
				}
				for _, s := range found {
					known(t, where, s, metrics)
					if !strings.Contains(s.String(), `namespace="$namespace"`) {
						t.Errorf("%s: %s is of every namespace", where, s)
					}
				}
			}
		}
		for _, v := range d.Templating.List {
			query := regexp.MustCompile(`^label_values\((.*), \w+\)$`).FindStringSubmatch(v.Query)
			if v.Type != "query" {
				continue
			}
			if query == nil {
				t.Errorf("%s: variable %s: %q is no label_values", file, v.Name, v.Query)
				continue
			}
			for _, s := range selectors(t, file+": variable "+v.Name, query[1]) {
				known(t, file+": variable "+v.Name, s, metrics)
			}
		}
	}
}

func TestDashboards_EveryPanelSaysWhatItShows(t *testing.T) {
	titles, uids := map[string]string{}, map[string]string{}
	for file, d := range dashboards(t) {
		if other := titles[d.Title] + uids[d.UID]; other != "" || d.UID == "" || d.Title == "" || d.Description == "" {
			t.Errorf("%s: uid %q, title %q and description %q must be there and its own; %s has them too", file, d.UID, d.Title, d.Description, other)
		}
		titles[d.Title], uids[d.UID] = file, file
		ids := map[int]bool{}
		for i, p := range d.Panels {
			if ids[p.ID] || p.ID == 0 {
				t.Errorf("%s: panel %q: id %d is not its own", file, p.Title, p.ID)
			}
			ids[p.ID] = true
			for _, other := range d.Panels[:i] {
				a, b := p.GridPos, other.GridPos
				if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
					t.Errorf("%s: panels %q and %q overlap", file, p.Title, other.Title)
				}
			}
			if p.GridPos.W < 1 || p.GridPos.H < 1 || p.GridPos.X+p.GridPos.W > 24 {
				t.Errorf("%s: panel %q does not fit: %+v", file, p.Title, p.GridPos)
			}
			if p.Title == "" {
				t.Errorf("%s: panel %d has no title", file, p.ID)
			}
			if p.Type != "row" {
				lintPanel(t, file, p)
			}
		}
	}
}

func lintPanel(t *testing.T, file string, p panel) {
	t.Helper()
	if p.Description == "" || p.FieldConfig.Defaults.Unit == "" {
		t.Errorf("%s: panel %q: description %q, unit %q", file, p.Title, p.Description, p.FieldConfig.Defaults.Unit)
	}
	if p.Datasource.UID != "${datasource}" {
		t.Errorf("%s: panel %q: data source %q, want the variable", file, p.Title, p.Datasource.UID)
	}
	if len(p.Targets) == 0 {
		t.Errorf("%s: panel %q asks nothing", file, p.Title)
	}
	for _, target := range p.Targets {
		if target.LegendFormat == "" {
			t.Errorf("%s: panel %q: a line without a name", file, p.Title)
		}
		// A counter that is not in a rate only rises; a rate over a fixed time goes blank when one zooms in.
		if regexp.MustCompile(`_total\b`).MatchString(target.Expr) && !regexp.MustCompile(`(rate|increase)\(`).MatchString(target.Expr) {
			t.Errorf("%s: panel %q: a counter as it is: %s", file, p.Title, target.Expr)
		}
		if regexp.MustCompile(`rate\([^)]*\[\d`).MatchString(target.Expr) {
			t.Errorf("%s: panel %q: a fixed rate interval: %s", file, p.Title, target.Expr)
		}
	}
}
