// One member of a group, as tests/clients/group_member.py describes it: BOOTSTRAP TOPIC member GROUP PROTOCOL INSTANCE.
"use strict";

const { Kafka, logLevel } = require("kafkajs");

async function main([bootstrap, topic, , groupId]) {
  const kafka = new Kafka({ clientId: "member", brokers: bootstrap.split(","), logLevel: logLevel.NOTHING });
  const timing = { sessionTimeout: 2000, heartbeatInterval: 200, rebalanceTimeout: 5000, maxWaitTimeInMs: 50 };
  const consumer = kafka.consumer({ groupId, metadataMaxAge: 1000, ...timing });
  let owned = [];
  const own = (partitions) => {
    tell("revoked", owned);
    owned = partitions;
    tell("assigned", owned);
  };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => own(payload.memberAssignment[topic] || []));
  consumer.on(consumer.events.REBALANCING, () => own([]));
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({
    autoCommit: false,
    eachBatch: async ({ batch, resolveOffset }) => {
      const offsets = batch.messages.map(({ offset }) => Number(offset));
      tell("read", offsets.map((offset) => [batch.partition, offset]));
      const next = offsets[offsets.length - 1] + 1;
      await consumer.commitOffsets([{ topic, partition: batch.partition, offset: String(next) }]);
      tell("committed", [[batch.partition, next]]);
      resolveOffset(String(next - 1));
    },
  });
  process.stdin.resume();
  process.stdin.on("end", async () => {
    await consumer.disconnect();
    tell("left", null);
    process.exit(0);
  });
}

function tell(event, value) {
  console.log(JSON.stringify([Number(process.hrtime.bigint()) / 1e9, event, value]));
}

main(process.argv.slice(2));
