package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/auditledger/auditledger/verify"
)

// readFrom reads --from: SEQ:SHA256, or the name of a checkpoint file. A file
// that is not there is no checkpoint: everything is checked.
func readFrom(s string) (*verify.Checkpoint, error) {
	if from, err := verify.ParseFrom(s); err == nil {
		return from, nil
	} else if strings.Contains(s, ":") && !strings.ContainsRune(s, filepath.Separator) {
		return nil, usageError{fmt.Errorf("--from: %w", err)}
	}
	content, err := os.ReadFile(s)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, usageError{fmt.Errorf("--from: %w", err)}
	}
	var from verify.Checkpoint
	if err := json.Unmarshal(content, &from); err != nil {
		return nil, usageError{fmt.Errorf("--from %s: %w; delete it to check everything", s, err)}
	}
	return &from, nil
}

// writeCheckpoint replaces the file whole or not at all.
func writeCheckpoint(path string, c *verify.Checkpoint) error {
	content, err := json.Marshal(c)
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".checkpoint-")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append(content, '\n'))
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}
