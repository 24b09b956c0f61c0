//go:build !unix

package fileanchor

import "errors"

const openFlags = 0

func sameVolume(string, string) (bool, error) { return false, errors.ErrUnsupported }
