package store

import (
	"fmt"
	"os"

	"github.com/auditledger/auditledger/internal/durable"
)

// checkDirectory refuses a directory on which the promises of this package do
// not hold, and takes away what others may do in it.
func (s *Store) checkDirectory(allowNetwork bool) error {
	kind, err := durable.NetworkFS(s.dir)
	if err != nil {
		return err
	}
	if err := refuseNetwork(kind, allowNetwork); err != nil {
		return err
	}
	info, err := os.Stat(s.dir)
	if err != nil {
		return err
	}
	mode := info.Mode().Perm()
	if mode&0o200 == 0 {
		return readOnly(mode)
	}
	if mode != 0o700 {
		s.log.Warn("mode of the ledger directory set to 0700", "was", fmt.Sprintf("%#o", mode))
		return os.Chmod(s.dir, 0o700)
	}
	return nil
}

// readOnly refuses what its owner made read-only, also where the process could
// write all the same: it may be kept as evidence.
func readOnly(mode os.FileMode) error {
	return fmt.Errorf("its owner may not write to it (mode %#o): chmod u+w, if it is not to stay as it is", mode)
}

func refuseNetwork(kind string, allow bool) error {
	if kind == "" || allow {
		return nil
	}
	return fmt.Errorf("it is on a network file system (%s), where locks between hosts may mean nothing and the chain may fork; use a local disk", kind)
}
