// Command websocket watches a ConfigMap over WebSocket in several ways and prints what the server does: the frames, the
// subprotocol and refused handshakes, one line each. Every API server has to print the same.
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/net/websocket"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// frame is what the server sent.
type frame struct {
	payloadType byte
	data        []byte
}

var frames = websocket.Codec{Unmarshal: func(data []byte, payloadType byte, value any) error {
	*value.(*frame) = frame{payloadType, data}
	return nil
}}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the API is")
	path := flag.String("path", "", "what to watch")
	flag.Parse()
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	for _, protocols := range [][]string{nil, {"base64.binary.k8s.io"}, {"v4.channel.k8s.io"}, {"a", "b"}} {
		fmt.Printf("%v: %s\n", protocols, watch(config, *path, protocols))
	}
	for _, header := range []string{"Origin", "Sec-WebSocket-Key", "Sec-WebSocket-Version", "Connection", "Upgrade"} {
		fmt.Printf("without %s: %s\n", header, handshake(config, *path, header))
	}
}

// watch reads the first frames of a watch that ends soon.
func watch(config *rest.Config, path string, protocols []string) string {
	options, err := websocket.NewConfig(strings.Replace(config.Host, "https", "wss", 1)+path, config.Host)
	check(err)
	options.Protocol = protocols
	options.TlsConfig, err = rest.TLSConfigFor(config)
	check(err)
	options.Header.Set("Authorization", "Bearer "+config.BearerToken)
	connection, err := websocket.DialConfig(options)
	if err != nil {
		return "refused"
	}
	defer connection.Close()
	check(connection.SetDeadline(time.Now().Add(time.Minute)))
	text := fmt.Sprintf("protocol %v", connection.Config().Protocol)
	for {
		var found frame
		if err := frames.Receive(connection, &found); err != nil {
			return text + ", " + err.Error()
		}
		var event struct {
			Type   string
			Object struct{ Metadata struct{ Name string } }
		}
		check(json.Unmarshal(found.data, &event))
		end := bytes.HasSuffix(found.data, []byte("\n"))
		text += fmt.Sprintf(", frame of type %d, %s %s, line end %v", found.payloadType, event.Type, event.Object.Metadata.Name, end)
	}
}

// handshake sends one without a header and returns the status.
func handshake(config *rest.Config, path, without string) string {
	transport, err := rest.TLSConfigFor(config)
	check(err)
	transport.NextProtos = []string{"http/1.1"}
	request, err := http.NewRequest("GET", config.Host+path, nil)
	check(err)
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
		"Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==", "Origin": config.Host,
	} {
		if name != without {
			request.Header[name] = []string{value}
		}
	}
	request.Header.Set("Authorization", "Bearer "+config.BearerToken)
	client := http.Client{Transport: &http.Transport{TLSClientConfig: transport}, Timeout: time.Minute}
	response, err := client.Do(request)
	check(err)
	defer response.Body.Close()
	return response.Status
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
