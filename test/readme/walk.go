// Package readme reads the console blocks of a Markdown page: commands and what they print. It runs nothing.
package readme

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Step is one command and what it should print.
type Step struct {
	Line    int // of the command, in the page
	Command string
	Want    string // without the line break at its end; … stands for anything
}

const (
	opening = "```console"
	closing = "```"
	prompt  = "$ "
	skipped = "…"
)

// Steps returns the commands of all console blocks of a page, in order. A block begins with a command.
func Steps(page string) ([]Step, error) {
	var steps []Step
	inside, began := false, 0
	number := 0
	for line := range strings.Lines(page) {
		number++
		line = strings.TrimSuffix(line, "\n")
		command, isCommand := strings.CutPrefix(line, prompt)
		switch {
		case !inside:
			inside, began = line == opening, len(steps)
		case line == closing:
			inside = false
		case isCommand:
			steps = append(steps, Step{Line: number, Command: command})
		case len(steps) == began:
			return nil, fmt.Errorf("line %d: a console block must begin with a command after %q", number, prompt)
		default:
			last := &steps[len(steps)-1]
			last.Want += line + "\n"
		}
	}
	if inside {
		return nil, errors.New("a console block has no end")
	}
	for i := range steps {
		steps[i].Want = strings.TrimSuffix(steps[i].Want, "\n")
	}
	return steps, nil
}

// Matches says whether a command printed what the step wants. … within a line stands for any text of that line; alone on a
// line it stands for any number of lines, also none.
func (s Step) Matches(printed string) bool {
	pattern := regexp.QuoteMeta(strings.TrimRight(s.Want, "\n"))
	pattern = regexp.MustCompile(`(?m)^`+skipped+`$`).ReplaceAllString(pattern, `(?s:.*)`)
	pattern = strings.ReplaceAll(pattern, skipped, `[^\n]*`)
	pattern = strings.ReplaceAll(pattern, "\n(?s:.*)", `(?s:\n.*)?`)
	return regexp.MustCompile(`\A` + pattern + `\z`).MatchString(strings.TrimRight(strings.ReplaceAll(printed, "\r", ""), "\n"))
}
