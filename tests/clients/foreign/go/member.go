package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/twmb/franz-go/pkg/kgo"
)

var telling sync.Mutex

// member is one member of a group, as tests/clients/group_member.py describes it.
func member(bootstrap, topic, group, protocol, instance string) error {
	ctx, leave := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		leave()
	}()
	client, err := kgo.NewClient(memberOptions(bootstrap, topic, group, protocol, instance)...)
	if err != nil {
		return err
	}
	pending := false
	for ctx.Err() == nil {
		poll, done := context.WithTimeout(ctx, 100*time.Millisecond)
		fetches := client.PollFetches(poll)
		done()
		pending = !readAndCommit(client, fetches, pending)
	}
	if instance == "" || protocol == "consumer" {
		client.LeaveGroup()
	}
	client.Close()
	tell("left", nil)
	return nil
}

func memberOptions(bootstrap, topic, group, protocol, instance string) []kgo.Opt {
	named := func(event string) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, places map[string][]int32) {
			tell(event, append([]int32{}, places[topic]...))
		}
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(group),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
		kgo.SessionTimeout(2 * time.Second),
		kgo.HeartbeatInterval(200 * time.Millisecond),
		kgo.FetchMaxWait(50 * time.Millisecond),
		kgo.MetadataMinAge(100 * time.Millisecond),
		kgo.MetadataMaxAge(time.Second),
		kgo.OnPartitionsAssigned(named("assigned")),
		kgo.OnPartitionsRevoked(named("revoked")),
		kgo.OnPartitionsLost(named("revoked")),
	}
	switch protocol {
	case "consumer":
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	case "range":
		options = append(options, kgo.Balancers(kgo.RangeBalancer()))
	default:
		options = append(options, kgo.Balancers(kgo.CooperativeStickyBalancer()))
	}
	if instance != "" {
		options = append(options, kgo.InstanceID(instance))
	}
	return options
}

// readAndCommit says whether nothing is left to commit: what a rebalance refuses is tried again.
func readAndCommit(client *kgo.Client, fetches kgo.Fetches, pending bool) bool {
	read := [][2]int64{}
	for _, one := range fetches.Records() {
		read = append(read, [2]int64{int64(one.Partition), one.Offset})
	}
	if len(read) == 0 && !pending {
		return true
	}
	if len(read) > 0 {
		tell("read", read)
	}
	ends := client.UncommittedOffsets()
	if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
		tell("not committed", err.Error())
		return false
	}
	committed := [][2]int64{}
	for _, places := range ends {
		for partition, end := range places {
			committed = append(committed, [2]int64{int64(partition), end.Offset})
		}
	}
	tell("committed", committed)
	return true
}

// tell prints one event with the time of the machine's monotonic clock, which Go keeps to itself.
func tell(event string, value any) {
	telling.Lock()
	defer telling.Unlock()
	var now syscall.Timespec
	_, _, _ = syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	line, _ := json.Marshal([]any{float64(now.Sec) + float64(now.Nsec)/1e9, event, value})
	fmt.Println(string(line))
}
