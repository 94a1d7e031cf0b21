package console

import (
	"fmt"
	"os"
	"sync"
)

// LogFile is a file that does not grow without end: at its limit it becomes NAME.1, in place of the one before, and a new
// one is begun.
type LogFile struct {
	mu    sync.Mutex
	path  string
	limit int64
	file  *os.File
	size  int64
}

// CreateLogFile begins an empty file at path; limit is in bytes. What was there becomes NAME.1.
func CreateLogFile(path string, limit int64) (*LogFile, error) {
	l := &LogFile{path: path, limit: limit}
	if err := l.begin(); err != nil {
		return nil, err
	}
	return l, nil
}

func (l *LogFile) begin() error {
	if err := os.Rename(l.path, l.path+".1"); err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("set aside the old log: %w", err)
	}
	file, err := os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("create log: %w", err)
	}
	l.file, l.size = file, 0
	return nil
}

// Write appends p.
func (l *LogFile) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.size > 0 && l.size+int64(len(p)) > l.limit {
		old := l.file
		if err := l.begin(); err != nil {
			return 0, err
		}
		if err := old.Close(); err != nil {
			return 0, fmt.Errorf("close the old log: %w", err)
		}
	}
	n, err := l.file.Write(p)
	l.size += int64(n)
	return n, err
}

// Close closes the file.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.file.Close()
}
