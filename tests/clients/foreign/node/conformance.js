// kafkajs behind the contract of tests/clients/conformance.py. It reads only through consumer groups.
"use strict";

const fs = require("fs");
const readline = require("readline");
const { CompressionTypes, CompressionCodecs, Kafka, Partitioners, logLevel } = require("kafkajs");
const { compressFrame, decompressFrame } = require("lz4-napi");
const snappy = require("snappyjs");
const { ZstdCodec } = require("zstd-codec");

const PATIENCE_MS = 60_000;
const BATCH_BYTES = 700_000;
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0x00]);
const XERIAL_HEADER_BYTES = 16;

async function main([bootstrap, topic, command, argument]) {
  await addCodecs();
  const kafka = new Kafka({ clientId: "conformance", brokers: [bootstrap], logLevel: logLevel.ERROR });
  const commands = {
    create: () => create(kafka, topic, Number(argument)),
    produce: () => produce(kafka, topic, argument),
    consume: () => consume(kafka, topic, Number(argument)),
  };
  await commands[command]();
}

async function create(kafka, topic, numPartitions) {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [{ topic, numPartitions }] });
  await admin.disconnect();
}

async function produce(kafka, topic, path) {
  const createPartitioner = Partitioners.DefaultPartitioner;
  const producer = kafka.producer({ idempotent: true, createPartitioner });
  await producer.connect();
  let batch = { compression: null, messages: [], size: 0 };
  for await (const line of readline.createInterface({ input: fs.createReadStream(path) })) {
    const record = JSON.parse(line);
    if (record.compression !== batch.compression || batch.size + line.length > BATCH_BYTES) {
      await send(producer, topic, batch);
      batch = { compression: record.compression, messages: [], size: 0 };
    }
    batch.messages.push(toSend(record));
    batch.size += line.length;
  }
  await send(producer, topic, batch);
  await producer.disconnect();
}

async function send(producer, topic, { compression, messages }) {
  if (messages.length > 0) {
    await producer.send({ topic, messages, compression: CODECS[compression], acks: -1 });
  }
}

function toSend({ partition, timestamp, key, value, headers }) {
  const named = {};
  for (const [name, content] of headers) {
    named[name] = [...(named[name] ?? []), bytes(content)];
  }
  const when = timestamp === null ? undefined : String(timestamp);
  return { partition, timestamp: when, key: bytes(key), value: bytes(value), headers: named };
}

async function consume(kafka, topic, count) {
  const consumer = kafka.consumer({ groupId: `conformance-${process.pid}-${Date.now()}` });
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  let seen = 0;
  await new Promise((resolve, reject) => {
    const patience = setTimeout(() => reject(new Error(`read ${seen} of ${count} records`)), PATIENCE_MS);
    const eachMessage = async ({ partition, message }) => {
      process.stdout.write(`${JSON.stringify(toPrint(partition, message))}\n`);
      seen += 1;
      if (seen === count) {
        clearTimeout(patience);
        resolve();
      }
    };
    // kafkajs starts again by itself where that can help, as when Apache Kafka has just begun to make its topic of offsets.
    consumer.on(consumer.events.CRASH, ({ payload }) => payload.restart || reject(payload.error));
    consumer.run({ eachMessage }).catch(reject);
  });
  await consumer.disconnect();
}

function toPrint(partition, { offset, timestamp, key, value, headers }) {
  const listed = Object.entries(headers).flatMap(([name, contents]) =>
    (Array.isArray(contents) ? contents : [contents]).map((content) => [name, text(content)]),
  );
  return {
    partition,
    offset: Number(offset),
    timestamp: Number(timestamp),
    key: text(key),
    value: text(value),
    headers: listed,
  };
}

async function addCodecs() {
  const zstd = await new Promise((resolve) => ZstdCodec.run(resolve));
  const simple = new zstd.Simple();
  const streaming = new zstd.Streaming();
  CompressionCodecs[CompressionTypes.ZSTD] = () => ({
    compress: async (encoder) => Buffer.from(simple.compress(encoder.buffer)),
    decompress: async (buffer) => Buffer.from(streaming.decompress(buffer)),
  });
  CompressionCodecs[CompressionTypes.LZ4] = () => ({
    compress: (encoder) => compressFrame(encoder.buffer),
    decompress: (buffer) => decompressFrame(buffer),
  });
  CompressionCodecs[CompressionTypes.Snappy] = () => ({
    compress: async (encoder) => Buffer.from(snappy.compress(encoder.buffer)),
    decompress: async (buffer) => unsnappy(buffer),
  });
}

// Java frames snappy in the way of the xerial library, others send it bare.
function unsnappy(buffer) {
  if (!buffer.subarray(0, XERIAL_MAGIC.length).equals(XERIAL_MAGIC)) {
    return Buffer.from(snappy.uncompress(buffer));
  }
  const blocks = [];
  for (let at = XERIAL_HEADER_BYTES; at < buffer.length; ) {
    const size = buffer.readInt32BE(at);
    blocks.push(Buffer.from(snappy.uncompress(buffer.subarray(at + 4, at + 4 + size))));
    at += 4 + size;
  }
  return Buffer.concat(blocks);
}

const bytes = (content) => (content === null ? null : Buffer.from(content, "base64"));
const text = (content) => (content === null || content === undefined ? null : content.toString("base64"));

main(process.argv.slice(2)).catch((error) => {
  console.error(error);
  process.exit(1);
});
