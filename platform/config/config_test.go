package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"example.com/watertight/platform/config"
)

type pool struct {
	Size  int `env:"POOL_SIZE" envDefault:"64" help:"handlers that run at once"`
	Queue int `env:"POOL_QUEUE" envDefault:"64" help:"calls that wait"`
}

func (p pool) Validate() error {
	var errs []error
	if p.Size < 1 {
		errs = append(errs, errors.New("POOL_SIZE: must be at least 1"))
	}
	if p.Queue < 0 {
		errs = append(errs, errors.New("POOL_QUEUE: must not be negative"))
	}
	return errors.Join(errs...)
}

type settings struct {
	URL   string        `env:"URL,required" help:"where"`
	Delay time.Duration `env:"DELAY" envDefault:"5s" help:"how long"`
	Recs  pool          `envPrefix:"RECS_"`
	Shop  pool          `envPrefix:"SHOP_"`
}

func TestLoad_DefaultsAndPrefixes(t *testing.T) {
	got, err := config.Load[settings]([]string{"URL=u=1", "RECS_POOL_SIZE=6", "OTHER=x"})
	if err != nil {
		t.Fatal(err)
	}
	want := settings{URL: "u=1", Delay: 5 * time.Second, Recs: pool{6, 64}, Shop: pool{64, 64}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
}

func TestLoad_ErrorsNameEveryVariableAtFault(t *testing.T) {
	cases := []struct {
		name    string
		environ []string
		want    []string
		not     []string
	}{
		{"missing", nil, []string{"URL"}, nil},
		{"unreadable, one of two fields of that name", []string{"URL=u", "RECS_POOL_SIZE=many", "SHOP_POOL_SIZE=3"}, []string{"RECS_POOL_SIZE: not a valid int"}, []string{"SHOP", "many"}},
		{"several", []string{"DELAY=soon", "SHOP_POOL_SIZE=x"}, []string{"URL", "DELAY: not a valid time.Duration", "SHOP_POOL_SIZE"}, nil},
		{"out of range", []string{"URL=u", "RECS_POOL_SIZE=0", "RECS_POOL_QUEUE=-1"}, []string{"RECS_POOL_SIZE: must be", "RECS_POOL_QUEUE: must"}, []string{"SHOP"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			_, err := config.Load[settings](c.environ)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q does not contain %q", err, want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(err.Error(), not) {
					t.Errorf("error %q contains %q", err, not)
				}
			}
		})
	}
}

func TestUsage_ListsEveryVariable(t *testing.T) {
	var out strings.Builder
	if err := config.Usage(&out, "A test.", settings{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"A test.", "URL", "(required)", "DELAY", "[5s]", "RECS_POOL_SIZE", "SHOP_POOL_QUEUE", "calls that wait"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("usage does not mention %q:\n%s", want, out.String())
		}
	}
}

func TestRead_HelpAndStrayArguments(t *testing.T) {
	var out strings.Builder
	if _, err := config.Read[settings]("A test.", []string{"--help"}, nil, &out); !errors.Is(err, config.ErrHelp) || !strings.Contains(out.String(), "DELAY") {
		t.Errorf("--help: error %v, output %q; want ErrHelp and the usage", err, out.String())
	}
	if _, err := config.Read[settings]("A test.", []string{"--port=1"}, nil, &out); err == nil || !strings.Contains(err.Error(), "--port=1") {
		t.Errorf("stray argument: %v, want an error that names it", err)
	}
	if got, err := config.Read[settings]("A test.", nil, []string{"URL=u"}, &out); err != nil || got.URL != "u" {
		t.Errorf("no arguments: %v %v", got, err)
	}
}
