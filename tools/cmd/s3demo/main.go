// Command s3demo is an S3 server with Object Lock, for the tests and the demo:
// versitygw over a directory. It listens on the loopback interface, makes the
// bucket that -bucket names, and keeps what it is given under -dir:
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
	"errors"
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

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on; port 0 is any that is free")
	dir := flag.String("dir", "", "`directory` for data and versions, made where absent (required)")
	access := flag.String("access", "demo", "access key")
	secret := flag.String("secret", "demo-secret", "secret key")
	bucket := flag.String("bucket", "", "`name` of a bucket with Object Lock, made where absent")
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
	failed := make(chan error, 1)
	go func() { failed <- run(ctx, *listen, *dir, *access, *secret, *bucket) }()
	// Every answered put is in the file system: there is nothing to wait for,
	// least of all idle connections.
	select {
	case <-ctx.Done():
	case err := <-failed:
		fmt.Fprintf(os.Stderr, "s3demo: %v\n", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, listen, dir, access, secret, bucket string) error {
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
	ctx, stop := context.WithCancelCause(ctx)
	go func() {
		if err := announce(ctx, "http://"+address, access, secret, bucket); err != nil {
			stop(err)
		}
	}()
	err = embedgw.RunVersityGW(ctx, store, &embedgw.Config{
		RootUserAccess: access, RootUserSecret: secret, Ports: []string{address},
		MaxConnections: 1024, MaxRequests: 512, MultipartMaxParts: 10000,
		Quiet: true, KeepAlive: true, HealthPath: "/healthz",
	})
	return errors.Join(context.Cause(ctx), err)
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

// announce makes the bucket and prints the line once the server answers.
func announce(ctx context.Context, address, access, secret, bucket string) error {
	for {
		resp, err := http.Get(address + "/healthz")
		if err == nil {
			resp.Body.Close()
			break
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if bucket != "" {
		client := s3.New(s3.Options{BaseEndpoint: &address, UsePathStyle: true, Region: "us-east-1",
			Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
				return aws.Credentials{AccessKeyID: access, SecretAccessKey: secret}, nil
			})})
		_, err := client.CreateBucket(ctx, &s3.CreateBucketInput{Bucket: &bucket, ObjectLockEnabledForBucket: aws.Bool(true)})
		var mine *types.BucketAlreadyOwnedByYou
		if err != nil && !errors.As(err, &mine) {
			return fmt.Errorf("make the bucket %s: %w", bucket, err)
		}
	}
	fmt.Printf("ready %s\n", address)
	return nil
}
