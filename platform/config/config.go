// Package config reads a process's settings from environment variables into structs, once, in main. It refuses files,
// flags and defaults that are not written on the struct itself, so that --help can print them all.
package config

import (
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"

	"github.com/caarlos0/env/v11"
)

// A Validator checks a struct after it was read. Its error starts with the name of the variable at fault, without the
// prefix that the struct is read under; several are joined with errors.Join.
type Validator interface {
	Validate() error
}

// Load reads a T from environ (lines of NAME=value, as os.Environ returns them). Fields carry caarlos0/env tags: env,
// envDefault, envPrefix; structs nest by named field. Every struct inside T that is a Validator is validated. All that is
// wrong comes back in one error that names each variable.
func Load[T any](environ []string) (T, error) {
	variables := env.ToMap(environ)
	cfg, err := env.ParseAsWithOptions[T](env.Options{Environment: variables})
	if err != nil {
		return cfg, named[T](err, variables)
	}
	return cfg, errors.Join(validate(reflect.ValueOf(cfg), "")...)
}

// named replaces the library's parse errors, which name Go fields, by errors that name variables: it parses each variable
// alone to see which one is at fault. A value may be a secret, so it is not repeated.
func named[T any](err error, variables map[string]string) error {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return err
	}
	var out []error
	for _, e := range all.Errors {
		if !errors.As(e, new(env.ParseError)) {
			out = append(out, e)
		}
	}
	visit(reflect.TypeFor[T](), "", func(_ reflect.StructField, name string) {
		value, set := variables[name]
		if !set {
			return
		}
		_, alone := env.ParseAsWithOptions[T](env.Options{Environment: map[string]string{name: value}})
		if wrong, ok := errors.AsType[env.ParseError](alone); ok {
			out = append(out, fmt.Errorf("%s: not a valid %s", name, wrong.Type))
		}
	})
	return errors.Join(out...)
}

// validate collects what the Validators in v say, innermost first, each with the prefix of its variables.
func validate(v reflect.Value, prefix string) []error {
	if v.Kind() != reflect.Struct {
		return nil
	}
	var errs []error
	for i := range v.NumField() {
		if f := v.Type().Field(i); f.IsExported() {
			errs = append(errs, validate(v.Field(i), prefix+f.Tag.Get("envPrefix"))...)
		}
	}
	checked, ok := reflect.TypeAssert[Validator](v)
	if !ok {
		return errs
	}
	err := checked.Validate()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			errs = append(errs, fmt.Errorf("%s%w", prefix, e))
		}
	} else if err != nil {
		errs = append(errs, fmt.Errorf("%s%w", prefix, err))
	}
	return errs
}

// ErrHelp is what Read returns when it was asked for help and gave it.
var ErrHelp = errors.New("help was shown")

// Read is Load for a main: `--help` (or -h, help) writes Usage to out and returns ErrHelp, any other argument is an error,
// because a process is configured by its environment alone.
func Read[T any](about string, args, environ []string, out io.Writer) (T, error) {
	var none T
	if len(args) == 0 {
		return Load[T](environ)
	}
	switch args[0] {
	case "--help", "-help", "-h", "help":
		return none, errors.Join(Usage(out, about, none), ErrHelp)
	}
	return none, fmt.Errorf("unknown argument %q: settings are environment variables, see --help", args[0])
}

// Usage writes what --help shows: about, then each variable of cfg with its default and the text of its `help` tag.
func Usage(w io.Writer, about string, cfg any) error {
	if _, err := fmt.Fprintf(w, "%s\n\nEnvironment variables:\n", about); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	visit(reflect.TypeOf(cfg), "", func(f reflect.StructField, name string) {
		value := "[" + f.Tag.Get("envDefault") + "]"
		if strings.Contains(f.Tag.Get("env"), ",required") {
			value = "(required)"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", name, value, f.Tag.Get("help"))
	})
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}

// visit calls each for every field that has a variable, with the variable's full name.
func visit(t reflect.Type, prefix string, each func(f reflect.StructField, name string)) {
	for f := range t.Fields() {
		if name, _, _ := strings.Cut(f.Tag.Get("env"), ","); name != "" {
			each(f, prefix+name)
		} else if f.Type.Kind() == reflect.Struct {
			visit(f.Type, prefix+f.Tag.Get("envPrefix"), each)
		}
	}
}
