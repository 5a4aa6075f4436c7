// Command oracle runs the Go libraries that Machinist has to match byte for
// byte. It reads one JSON request per line on standard input and writes one
// JSON response per line on standard output, in the same order. It flushes
// after each response, so that a test can use it as a co-process.
//
// The response to a failed request is {"error": "..."}. The process ends only
// at the end of its input. The operations, by their "op":
//
//	yaml     json, or value    -> yaml: what ghodss/yaml makes of a JSON text
//	hash     spec              -> yaml, md5: what names a rendered config
//	parse    raw               -> config, spec, v2, report: an Ignition config, 3.x as 3.5, 2.x as 2.2
//	upgrade  raw               -> config: any Ignition config as 3.5
//	convert  raw, target       -> config: an Ignition 3.x config as an older one
//	merge    raws              -> config: Ignition's own merge, from left to right
//	render   raws              -> config: the Ignition part of a rendered config; "" is no config
//	dataurl  url               -> base64: the contents of a data URL
//	url      url               -> scheme, opaque: as net/url splits it
//	unit     text              -> sections: the section of each option of a systemd unit
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// maxLine bounds a request; a rendered config is a few megabytes at most.
const maxLine = 64 << 20

// request is the union of the fields of all operations.
type request struct {
	Op     string          `json:"op"`
	JSON   *string         `json:"json"`
	Value  json.RawMessage `json:"value"`
	Raw    string          `json:"raw"`
	Raws   []string        `json:"raws"`
	Target string          `json:"target"`
	URL    string          `json:"url"`
	Text   string          `json:"text"`
	Spec   string          `json:"spec"`
}

// response is one line of output: the fields of the JSON object.
type response map[string]any

// operations maps the name of an operation to its function.
var operations = map[string]func(request) (response, error){
	"yaml":    opYAML,
	"hash":    opHash,
	"dataurl": opDataURL,
	"url":     opURL,
	"unit":    opUnit,
	"parse":   opParse,
	"upgrade": opUpgrade,
	"convert": opConvert,
	"merge":   opMerge,
	"render":  opRender,
}

func main() {
	if err := serve(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

// serve processes every line of in until its end.
func serve(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	w := bufio.NewWriterSize(out, 1<<20)
	for {
		line, tooLong, err := readLine(lines)
		var a response
		switch line = bytes.TrimSpace(line); {
		case tooLong:
			a = response{"error": fmt.Sprintf("a request is longer than %d bytes", maxLine)}
		case len(line) > 0:
			a = respond(line)
		}
		if a != nil {
			if werr := writeLine(w, a); werr != nil {
				return werr
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readLine returns the next line. One that is too long is read to its end and
// dropped.
func readLine(r *bufio.Reader) (line []byte, tooLong bool, err error) {
	for {
		part, err := r.ReadSlice('\n')
		if tooLong = tooLong || len(line)+len(part) > maxLine; tooLong {
			line = nil
		} else {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, tooLong, err
		}
	}
}

// writeLine writes one response and flushes it.
func writeLine(w *bufio.Writer, a response) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(a); err != nil {
		// Nothing was written yet: the encoder buffers a whole value.
		if err := enc.Encode(response{"error": "encoding the response: " + err.Error()}); err != nil {
			return err
		}
	}
	return w.Flush()
}

// respond performs one request and turns failures and panics into a response.
func respond(line []byte) (a response) {
	defer func() {
		if p := recover(); p != nil {
			a = response{"error": fmt.Sprintf("panic: %v", p)}
		}
	}()
	var req request
	if err := json.Unmarshal(line, &req); err != nil {
		return response{"error": "bad request: " + err.Error()}
	}
	op, ok := operations[req.Op]
	if !ok {
		return response{"error": fmt.Sprintf("unknown op %q", req.Op)}
	}
	a, err := op(req)
	if err != nil {
		if a == nil {
			a = response{}
		}
		a["error"] = err.Error()
	}
	return a
}
