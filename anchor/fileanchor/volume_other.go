//go:build !unix

package fileanchor

import "errors"

func sameVolume(string, string) (bool, error) { return false, errors.ErrUnsupported }
