package check

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"

	"github.com/google/uuid"
)

// maxLine is the longest line of a file of acknowledged orders, in bytes.
const maxLine = 1 << 20

// ReadAcknowledged reads the ids of acknowledged orders: each line is one, or a JSON object with one in its field id; empty
// lines are skipped. An error names the line.
func ReadAcknowledged(r io.Reader) ([]uuid.UUID, error) {
	var ids []uuid.UUID
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	number := 0
	for scanner.Scan() {
		number++
		line := bytes.TrimSpace(scanner.Bytes())
		if len(line) == 0 {
			continue
		}
		id, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		ids = append(ids, id)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("line %d: %w", number+1, err)
	}
	return ids, nil
}

func parseLine(line []byte) (uuid.UUID, error) {
	text := string(line)
	if line[0] == '{' {
		var object struct {
			ID *string `json:"id"`
		}
		if err := json.Unmarshal(line, &object); err != nil {
			return uuid.Nil, fmt.Errorf("not a JSON object with an order's id: %w", err)
		}
		if object.ID == nil {
			return uuid.Nil, fmt.Errorf("a JSON object without the field id")
		}
		text = *object.ID
	}
	id, err := uuid.Parse(text)
	if err != nil || len(text) != 36 { // Parse takes other forms, too
		return uuid.Nil, fmt.Errorf("%.80q is not the id of an order", text)
	}
	return id, nil
}
