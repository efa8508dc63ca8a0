// Command kubelet answers what `kubectl port-forward` asks of a node's kubelet, with the code that
// container runtimes do it with. It has no pods: a port of any pod is one of this machine.
//
//	kubelet ADDRESS PORT=LOCAL...
//
// listens at ADDRESS (127.0.0.1:10250), with TLS and a certificate of its own, and takes PORT of a pod to
// be LOCAL of 127.0.0.1.
package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/cri-streaming/pkg/streaming/portforward"
)

// ports has local ports by those of pods.
type ports map[int32]string

// PortForward carries one connection.
func (p ports) PortForward(ctx context.Context, pod, _ string, port int32, stream io.ReadWriteCloser) error {
	defer stream.Close()
	local, ok := p[port]
	if !ok {
		return fmt.Errorf("pod %s has no port %d", pod, port)
	}
	var dialer net.Dialer
	connection, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", local))
	if err != nil {
		return err
	}
	defer connection.Close()
	ended := make(chan error, 2)
	go func() {
		_, err := io.Copy(connection, stream)
		ended <- err
	}()
	go func() {
		_, err := io.Copy(stream, connection)
		ended <- err
	}()
	return <-ended
}

func (p ports) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	options, err := portforward.NewV4Options(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	portforward.ServePortForward(w, r, p, r.PathValue("pod"), "", options,
		4*time.Hour, 30*time.Second, []string{portforward.ProtocolV1Name})
}

// certificate is one that nobody can check; kube-apiserver does not unless it is told to.
func certificate() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, err
	}
	template := x509.Certificate{
		SerialNumber: big.NewInt(1),
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		DNSNames:     []string{"localhost"},
	}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, &key.PublicKey, key)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, err
}

func run(address string, pairs []string) error {
	p := ports{}
	for _, pair := range pairs {
		port, local, ok := strings.Cut(pair, "=")
		number, err := strconv.ParseInt(port, 10, 32)
		if !ok || err != nil {
			return fmt.Errorf("%q is not PORT=LOCAL", pair)
		}
		p[int32(number)] = local
	}
	own, err := certificate()
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/portForward/{namespace}/{pod}", p)
	server := http.Server{
		Addr:    address,
		Handler: mux,
		// SPDY takes a connection over, which HTTP/2 has no way for.
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{own}, NextProtos: []string{"http/1.1"}},
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
	}
	return server.ListenAndServeTLS("", "")
}

func main() {
	if len(os.Args) < 3 {
		log.Fatal("usage: kubelet ADDRESS PORT=LOCAL...")
	}
	log.Fatal(run(os.Args[1], os.Args[2:]))
}
