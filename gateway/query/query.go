// Package query reads URL query parameters strictly: a parameter that is given twice, is not UTF-8 or is not the number asked
// for is an error that names it, never a default in disguise. Parameters nobody asks for are left alone.
package query

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Error is one parameter that is wrong. Param is empty when the query string as a whole cannot be read.
type Error struct {
	Param  string
	Detail string
}

func (e *Error) Error() string {
	if e.Param == "" {
		return e.Detail
	}
	return e.Param + ": " + e.Detail
}

// Params are the parameters of one request. It remembers the first thing that is wrong, so that a handler reads all its
// parameters and asks Err once. Not safe for concurrent use.
type Params struct {
	values url.Values
	err    *Error
}

// Parse reads the part of a URL behind the question mark.
func Parse(rawQuery string) *Params {
	values, err := url.ParseQuery(rawQuery)
	p := &Params{values: values}
	if err != nil {
		p.fail("", "the query string is not valid: a % needs two hexadecimal digits behind it, and parameters are separated by &")
	}
	return p
}

// Text returns the parameter's value, "" when it is absent.
func (p *Params) Text(name string) string {
	value, _ := p.one(name)
	return value
}

// Int returns the parameter as an integer between low and high, fallback when it is absent.
func (p *Params) Int(name string, fallback, low, high int32) int32 {
	value, given := p.one(name)
	if !given {
		return fallback
	}
	n, err := strconv.ParseInt(value, 10, 32)
	if err != nil || strings.HasPrefix(value, "+") || n < int64(low) || n > int64(high) {
		p.fail(name, fmt.Sprintf("must be an integer from %d to %d", low, high))
		return fallback
	}
	return int32(n)
}

// Err returns the first thing that was wrong with the parameters read so far, an *Error, or nil.
func (p *Params) Err() error {
	if p.err == nil {
		return nil
	}
	return p.err
}

func (p *Params) one(name string) (value string, given bool) {
	all := p.values[name]
	switch {
	case len(all) == 0:
		return "", false
	case len(all) > 1:
		p.fail(name, "must be given at most once")
	case !utf8.ValidString(all[0]):
		p.fail(name, "must be valid UTF-8")
	}
	return all[0], true
}

func (p *Params) fail(param, detail string) {
	if p.err == nil {
		p.err = &Error{Param: param, Detail: detail}
	}
}
