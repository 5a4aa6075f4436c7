// Command informer runs a shared informer of client-go on the ConfigMaps of a namespace and writes its events to a file,
// one JSON line per event. On SIGUSR1 it also writes the contents of its store, followed by an end line.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	core "k8s.io/api/core/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// line is one event, one list, or one object of the store.
type line struct {
	Event   string `json:"event"`
	Name    string `json:"name"`
	UID     string `json:"uid"`
	Version string `json:"version"`
	Count   string `json:"count"`
}

type lineWriter struct {
	mutex sync.Mutex
	out   *os.File
}

func (w *lineWriter) write(lines ...line) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	var text []byte
	for _, line := range lines {
		bytes, err := json.Marshal(line)
		check(err)
		text = append(append(text, bytes...), '\n')
	}
	_, err := w.out.Write(text)
	check(err)
}

func describe(event string, object any) line {
	if tombstone, is := object.(cache.DeletedFinalStateUnknown); is {
		// The object was deleted before the informer listed again, so the revision is unknown.
		event, object = "gone", tombstone.Obj
	}
	one := object.(*core.ConfigMap)
	return line{event, one.Name, string(one.UID), one.ResourceVersion, one.Data["count"]}
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "where the API is")
	namespace := flag.String("namespace", "default", "the namespace to watch")
	out := flag.String("out", "", "where the lines go")
	flag.Parse()
	file, err := os.Create(*out)
	check(err)
	writer := &lineWriter{out: file}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	check(err)
	client, err := kubernetes.NewForConfig(config)
	check(err)
	maps := client.CoreV1().ConfigMaps(*namespace)
	source := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options meta.ListOptions) (runtime.Object, error) {
			list, err := maps.List(ctx, options)
			if err == nil {
				writer.write(line{Event: "list", Version: list.ResourceVersion})
			}
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, options meta.ListOptions) (watch.Interface, error) {
			return maps.Watch(ctx, options)
		},
	}
	informer := cache.NewSharedIndexInformer(source, &core.ConfigMap{}, 0, cache.Indexers{})
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { writer.write(describe("add", object)) },
		UpdateFunc: func(_, object any) { writer.write(describe("update", object)) },
		DeleteFunc: func(object any) { writer.write(describe("delete", object)) },
	})
	check(err)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGUSR1)
	go informer.Run(make(chan struct{}))
	for range signals {
		lines := []line{}
		for _, object := range informer.GetStore().List() {
			lines = append(lines, describe("has", object))
		}
		writer.write(append(lines, line{Event: "end"})...)
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
