// Command s3demo is an S3 server with Object Lock, for the tests and the demo:
// versitygw over a directory. It listens on the loopback interface, makes no
// bucket, and keeps what it is given under -dir:
//
//	DIR/data  the objects, each a file, its lock in extended attributes
//	DIR/ver   versions that are not current: without it nothing is locked
//
// It prints one line, "ready http://ADDRESS", once it answers, and ends at
// SIGTERM, at SIGINT, or when its standard input ends: a test that dies takes
// it along. Its credentials are in the flags, for nothing here is a secret.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on; port 0 is any that is free")
	dir := flag.String("dir", "", "`directory` for data and versions, made where absent (required)")
	access := flag.String("access", "demo", "access key")
	secret := flag.String("secret", "demo-secret", "secret key")
	stdin := flag.Bool("stdin", false, "end when standard input ends")
	flag.Parse()
	if *dir == "" || flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *stdin {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	if err := run(ctx, *listen, *dir, *access, *secret); err != nil && ctx.Err() == nil {
		fmt.Fprintf(os.Stderr, "s3demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, dir, access, secret string) error {
	data, versions := filepath.Join(dir, "data"), filepath.Join(dir, "ver")
	for _, d := range []string{data, versions} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	address, err := free(listen)
	if err != nil {
		return err
	}
	store, err := posix.New(data, meta.XattrMeta{}, posix.PosixOpts{VersioningDir: versions, Concurrency: 64})
	if err != nil {
		return fmt.Errorf("open %s: %w; it needs a file system with extended attributes", dir, err)
	}
	go announce(ctx, address)
	return embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess: access, RootUserSecret: secret, Ports: []string{address},
		MaxConnections: 1024, MaxRequests: 512, MultipartMaxParts: 10000,
		Quiet: true, KeepAlive: true, HealthPath: "/healthz",
	})
}

// free is listen with a port that was free a moment ago: the gateway takes no
// listener of ours.
func free(listen string) (string, error) {
	host, port, err := net.SplitHostPort(listen)
	if err != nil || port != "0" {
		return listen, err
	}
	l, err := net.Listen("tcp", net.JoinHostPort(host, "0"))
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// announce prints the line once the server answers.
func announce(ctx context.Context, address string) {
	for ctx.Err() == nil {
		if resp, err := http.Get("http://" + address + "/healthz"); err == nil {
			resp.Body.Close()
			fmt.Printf("ready http://%s\n", address)
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(5 * time.Millisecond):
		}
	}
}
