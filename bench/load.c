/* A load generator on librdkafka, the library under most Kafka clients. It prints one JSON object.
 *
 *   load produce BOOTSTRAP TOPIC PARTITIONS SIZE SECONDS BYTES_MAX RATE [property=value ...]
 *     Sends records of SIZE bytes to PARTITIONS in turn, or with 0 to where the client itself puts records without keys, for
 *     SECONDS or until BYTES_MAX, RATE a second or, with 0, as fast as they go; ends when all are acknowledged. Latency
 *     runs from handing a record over to its acknowledgement.
 *
 *   load consume BOOTSTRAP TOPIC PARTITIONS COUNT SECONDS [property=value ...]
 *     Reads the first COUNT records of the topic, again and again for SECONDS.
 *
 * The few declarations it needs are its own, so that the library inside a Python package serves without headers. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/types.h>
#include <time.h>

typedef struct rd_kafka_s client_t;
typedef struct rd_kafka_conf_s conf_t;
typedef struct rd_kafka_topic_s topic_t;
typedef struct rd_kafka_queue_s queue_t;
typedef struct rd_kafka_topic_partition_list_s places_t;
typedef struct {
    int error;
    topic_t *topic;
    int32_t partition;
    void *payload;
    size_t size;
    void *key;
    size_t key_size;
    int64_t offset;
    void *opaque;
} message_t;

enum { PRODUCER, CONSUMER };
enum { ANY_PARTITION = -1, COPY = 2, POOL_BYTES = 1 << 20, ERROR_BYTES = 512 };

extern conf_t *rd_kafka_conf_new(void);
extern int rd_kafka_conf_set(conf_t *, const char *, const char *, char *, size_t);
extern void rd_kafka_conf_set_dr_msg_cb(conf_t *, void (*)(client_t *, const message_t *, void *));
extern client_t *rd_kafka_new(int, conf_t *, char *, size_t);
extern topic_t *rd_kafka_topic_new(client_t *, const char *, void *);
extern int rd_kafka_produce(topic_t *, int32_t, int, void *, size_t, const void *, size_t, void *);
extern int rd_kafka_poll(client_t *, int);
extern int rd_kafka_outq_len(client_t *);
extern const char *rd_kafka_err2str(int);
extern places_t *rd_kafka_topic_partition_list_new(int);
extern void *rd_kafka_topic_partition_list_add(places_t *, const char *, int32_t);
extern int rd_kafka_topic_partition_list_set_offset(places_t *, const char *, int32_t, int64_t);
extern int rd_kafka_assign(client_t *, const places_t *);
extern int rd_kafka_poll_set_consumer(client_t *);
extern queue_t *rd_kafka_queue_get_consumer(client_t *);
extern ssize_t rd_kafka_consume_batch_queue(queue_t *, int, message_t **, size_t);
extern void rd_kafka_message_destroy(message_t *);

static const double PATIENCE_S = 60;
static long acknowledged, failed;
static uint32_t *latencies_us;
static long latencies_max;

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double cpu_s(void) {
    struct rusage r;
    getrusage(RUSAGE_SELF, &r);
    return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) + (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) / 1e6;
}

static void die(const char *what, const char *why) {
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

static void set(conf_t *conf, const char *name, const char *value) {
    char error[ERROR_BYTES];
    if (rd_kafka_conf_set(conf, name, value, error, sizeof error) != 0) die(name, error);
}

static void set_all(conf_t *conf, int count, char **properties) {
    for (int i = 0; i < count; i++) {
        char *equals = strchr(properties[i], '=');
        if (equals == NULL) die(properties[i], "is not property=value");
        *equals = '\0';
        set(conf, properties[i], equals + 1);
    }
}

static client_t *open_client(int kind, conf_t *conf) {
    char error[ERROR_BYTES];
    client_t *client = rd_kafka_new(kind, conf, error, sizeof error);
    if (client == NULL) die("client", error);
    return client;
}

/* The opaque of a record is the microsecond at which it was handed over. */
static void on_delivery(client_t *client, const message_t *message, void *opaque) {
    (void)client, (void)opaque;
    if (message->error) {
        if (failed++ == 0) fprintf(stderr, "not delivered: %s\n", rd_kafka_err2str(message->error));
        return;
    }
    if (acknowledged < latencies_max)
        latencies_us[acknowledged] = (uint32_t)((uint64_t)(now_s() * 1e6) - (uint64_t)(uintptr_t)message->opaque);
    acknowledged++;
}

static int by_size(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static double percentile_ms(long count, double share) {
    return count == 0 ? 0 : latencies_us[(long)((double)(count - 1) * share)] / 1e3;
}

static void wait_for_all(client_t *client) {
    double patient = now_s() + PATIENCE_S;
    while (rd_kafka_outq_len(client) > 0) {
        if (now_s() > patient) die("produce", "records were not acknowledged in time");
        rd_kafka_poll(client, 5);
    }
}

static void hand_over(client_t *client, topic_t *topic, int32_t partition, void *payload, size_t size) {
    void *when = (void *)(uintptr_t)(uint64_t)(now_s() * 1e6);
    while (rd_kafka_produce(topic, partition, COPY, payload, size, NULL, 0, when) != 0)
        rd_kafka_poll(client, 1); /* its queue is full */
}

static void produce(const char *topic_name, char **numbers, conf_t *conf) {
    int partitions = atoi(numbers[0]);
    size_t size = (size_t)atol(numbers[1]);
    double seconds = atof(numbers[2]), bytes_max = atof(numbers[3]), rate = atof(numbers[4]);
    rd_kafka_conf_set_dr_msg_cb(conf, on_delivery);
    client_t *client = open_client(PRODUCER, conf);
    topic_t *topic = rd_kafka_topic_new(client, topic_name, NULL);
    char *pool = malloc(POOL_BYTES);
    for (int i = 0; i < POOL_BYTES; i++) pool[i] = (char)rand();
    latencies_max = 50L * 1000 * 1000;
    latencies_us = malloc((size_t)latencies_max * sizeof *latencies_us);
    hand_over(client, topic, 0, pool, size); /* connects, and learns where partitions live */
    wait_for_all(client);
    acknowledged = 0;

    double began = now_s(), cpu = cpu_s();
    long sent = 0;
    while ((double)sent * (double)size < bytes_max) {
        double elapsed = now_s() - began;
        if (elapsed >= seconds) break;
        long due = rate > 0 ? (long)(elapsed * rate) : sent + 256;
        for (; sent < due; sent++) {
            int32_t partition = partitions > 0 ? (int32_t)(sent % partitions) : ANY_PARTITION;
            hand_over(client, topic, partition, pool + sent * 131 % (POOL_BYTES - (long)size), size);
        }
        rd_kafka_poll(client, rate > 0 ? 1 : 0);
    }
    wait_for_all(client);
    double took = now_s() - began;
    cpu = cpu_s() - cpu;

    long measured = acknowledged < latencies_max ? acknowledged : latencies_max;
    qsort(latencies_us, (size_t)measured, sizeof *latencies_us, by_size);
    printf("{\"records\": %ld, \"bytes\": %.0f, \"failed\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f, "
           "\"p50_ms\": %.3f, \"p99_ms\": %.3f}\n",
           acknowledged, (double)acknowledged * (double)size, failed, took, cpu, percentile_ms(measured, 0.5),
           percentile_ms(measured, 0.99));
}

static void rewind_all(client_t *client, const char *topic, int partitions) {
    places_t *places = rd_kafka_topic_partition_list_new(partitions);
    for (int32_t i = 0; i < partitions; i++) {
        rd_kafka_topic_partition_list_add(places, topic, i);
        rd_kafka_topic_partition_list_set_offset(places, topic, i, 0);
    }
    rd_kafka_assign(client, places);
}

static void consume(const char *topic, char **numbers, conf_t *conf) {
    enum { BATCH = 10000 };
    static message_t *batch[BATCH];
    int partitions = atoi(numbers[0]);
    long count = atol(numbers[1]), records = 0, rounds = 0;
    double seconds = atof(numbers[2]), bytes = 0, began = 0, cpu = 0, patient = now_s() + PATIENCE_S;
    set(conf, "group.id", "load");
    set(conf, "enable.auto.commit", "false");
    client_t *client = open_client(CONSUMER, conf);
    rd_kafka_poll_set_consumer(client);
    queue_t *queue = rd_kafka_queue_get_consumer(client);
    do {
        rewind_all(client, topic, partitions);
        for (long seen = 0; seen < count;) {
            size_t room = count - seen < BATCH ? (size_t)(count - seen) : BATCH; /* it waits until there are so many */
            ssize_t got = rd_kafka_consume_batch_queue(queue, 100, batch, room);
            if (now_s() > patient) die("consume", "records did not come in time");
            for (ssize_t i = 0; i < got; i++) {
                if (batch[i]->error) {
                    if (failed++ == 0) fprintf(stderr, "not read: %s\n", rd_kafka_err2str(batch[i]->error));
                } else {
                    seen++, records++, bytes += (double)batch[i]->size;
                }
                rd_kafka_message_destroy(batch[i]);
            }
        }
        if (rounds++ == 0) began = now_s(), cpu = cpu_s(), records = 0, bytes = 0; /* the first round connects */
    } while (now_s() - began < seconds);
    printf("{\"records\": %ld, \"bytes\": %.0f, \"failed\": %ld, \"seconds\": %.6f, \"client_cpu_s\": %.3f}\n", records,
           bytes, failed, now_s() - began, cpu_s() - cpu);
}

int main(int count, char **words) {
    if (count < 4) die("load", "produce or consume, a bootstrap address, a topic");
    conf_t *conf = rd_kafka_conf_new();
    set(conf, "bootstrap.servers", words[2]);
    int is_producer = strcmp(words[1], "produce") == 0, first = is_producer ? 9 : 7;
    if (count < first) die(words[1], "too few arguments");
    set_all(conf, count - first, words + first);
    if (is_producer)
        produce(words[3], words + 4, conf);
    else
        consume(words[3], words + 4, conf);
    fflush(stdout);
    _Exit(0); /* closing a client in good order waits for its threads, and there is nothing left to lose */
}
