// Command s3pretender is an S3 server that takes Object Lock headers, repeats
// them when it is asked, and locks nothing: gofakes3 in memory. The anchoring
// code must refuse it. It prints "ready http://ADDRESS", and ends when its
// standard input ends (with -stdin) or it is killed. It takes any credentials.
package main

import (
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on; port 0 is any that is free")
	stdin := flag.Bool("stdin", false, "end when standard input ends")
	flag.Parse()
	l, err := net.Listen("tcp", *listen)
	if err != nil {
		fmt.Fprintf(os.Stderr, "s3pretender: %v\n", err)
		os.Exit(1)
	}
	if *stdin {
		go func() {
			io.Copy(io.Discard, os.Stdin)
			os.Exit(0)
		}()
	}
	fmt.Printf("ready http://%s\n", l.Addr())
	fmt.Fprintf(os.Stderr, "s3pretender: %v\n", http.Serve(l, gofakes3.New(s3mem.New()).Server()))
	os.Exit(1)
}
