package interop;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.BitSet;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.api.TypedMessageBuilder;
import org.apache.pulsar.client.impl.BatchMessageIdImpl;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.TenantInfo;

/**
 * Runs a Pulsar broker in this process, and does what standard input says: a JSON object in each line, whose "do" is
 * the name of the command. The answer is a line of JSON.
 *
 * <p>Arguments: host and port of the metadata, and settings of the broker as name=value. The program knows nothing of
 * the messages: the commands say what is in them, and the answers say what was found. Bytes are hexadecimal.
 */
public final class Topics {
    private static final int RECEIVE_S = 60;
    private static final int REST_S = 3;
    private static final int ANSWER_S = 120;
    private static final HexFormat HEX = HexFormat.of();

    private final ObjectMapper json = new ObjectMapper();
    private final PulsarAdmin admin;
    private final PulsarClient client;

    private Topics(PulsarAdmin admin, PulsarClient client) {
        this.admin = admin;
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        for (int index = 1; index < arguments.length; index++) {
            String[] setting = arguments[index].split("=", 2);
            settings.put(setting[0], setting[1]);
        }
        PulsarService broker = Broker.start(arguments[0], settings);
        try (PulsarClient client = PulsarClient.builder().serviceUrl(broker.getBrokerServiceUrl()).build()) {
            Topics topics = new Topics(broker.getAdminClient(), client);
            System.out.println("{}");
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                System.out.println(topics.answer(line));
            }
        }
        broker.close();
        System.exit(0);
    }

    private String answer(String line) throws Exception {
        JsonNode command = json.readTree(line);
        ObjectNode answer = json.createObjectNode();
        try {
            run(command, answer);
        } catch (Exception error) {
            error.printStackTrace();
            answer.put("error", error.toString());
        }
        return json.writeValueAsString(answer);
    }

    private void run(JsonNode command, ObjectNode answer) throws Exception {
        String name = command.get("do").asText();
        String topic = command.path("topic").asText();
        switch (name) {
            case "namespace" -> createNamespace(command);
            case "create" -> admin.topics().createNonPartitionedTopic(topic);
            case "create-partitioned" ->
                admin.topics().createPartitionedTopic(topic, command.get("partitions").asInt());
            case "subscribe" ->
                admin.topics().createSubscription(topic, command.get("subscription").asText(), MessageId.earliest);
            case "deduplicate" ->
                admin.namespaces().setDeduplicationStatus(command.get("namespace").asText(), true);
            case "produce" -> produce(command, answer.putArray("ids"));
            case "consume" -> consume(command, answer.putArray("messages"));
            case "read" -> read(topic, command.path("after"), answer.putArray("messages"));
            case "last" -> answer.set("id", idOf(admin.topics().getLastMessageId(topic)));
            case "unload" -> admin.topics().unload(topic);
            case "trim" -> admin.topics().trimTopic(topic);
            case "internal" -> answer.set("stats", json.valueToTree(admin.topics().getInternalStats(topic)));
            case "terminate" -> answer.set("id", idOf(admin.topics().terminateTopic(topic)));
            case "delete" -> admin.topics().delete(topic, true);
            case "ids" -> command.get("ids").forEach(given -> answer.withArray("ids").add(idOf(made(given))));
            default -> throw new IllegalArgumentException(name);
        }
    }

    /** Create a namespace, and what it needs, with its retention. */
    private void createNamespace(JsonNode command) throws Exception {
        String namespace = command.get("namespace").asText();
        String tenant = namespace.split("/")[0];
        if (!admin.clusters().getClusters().contains(Broker.CLUSTER)) {
            admin.clusters().createCluster(Broker.CLUSTER, ClusterData.builder().build());
        }
        if (!admin.tenants().getTenants().contains(tenant)) {
            admin.tenants().createTenant(tenant, TenantInfo.builder().allowedClusters(Set.of(Broker.CLUSTER)).build());
        }
        admin.namespaces().createNamespace(namespace, 1);
        int minutes = command.get("minutes").asInt();
        admin.namespaces().setRetention(namespace, new RetentionPolicies(minutes, command.get("megabytes").asInt()));
    }

    /** Send messages, in batches of so many; 0 stands for single messages. Answer the ids. */
    private void produce(JsonNode command, ArrayNode ids) throws Exception {
        int batch = command.path("batch").asInt();
        ProducerBuilder<byte[]> builder = client.newProducer()
                .topic(command.get("topic").asText())
                .producerName(command.path("producer").asText("producer"))
                .compressionType(CompressionType.valueOf(command.path("compression").asText("NONE")))
                .hashingScheme(HashingScheme.valueOf(command.path("hash").asText("JavaStringHash")))
                .enableBatching(batch > 0)
                .maxPendingMessages(1000)
                .blockIfQueueFull(true)
                .sendTimeout(0, TimeUnit.SECONDS);
        if (batch > 0) {
            builder.batchingMaxMessages(batch).batchingMaxPublishDelay(10, TimeUnit.SECONDS);
        }
        if (command.has("chunk")) {
            builder.enableChunking(true).chunkMaxMessageSize(command.get("chunk").asInt());
        }
        List<CompletableFuture<MessageId>> sent = new ArrayList<>();
        try (Producer<byte[]> producer = builder.create()) {
            for (JsonNode given : command.get("messages")) {
                sent.add(message(producer.newMessage(), given).sendAsync());
            }
            producer.flush();
            for (CompletableFuture<MessageId> one : sent) {
                ids.add(idOf(one.get(ANSWER_S, TimeUnit.SECONDS)));
            }
        }
    }

    private static TypedMessageBuilder<byte[]> message(TypedMessageBuilder<byte[]> message, JsonNode given) {
        if (given.has("key")) {
            message.key(given.get("key").asText());
        }
        if (given.has("keyBytes")) {
            message.keyBytes(HEX.parseHex(given.get("keyBytes").asText()));
        }
        if (given.has("orderingKey")) {
            message.orderingKey(HEX.parseHex(given.get("orderingKey").asText()));
        }
        if (given.has("eventTime")) {
            message.eventTime(given.get("eventTime").asLong());
        }
        if (given.has("sequenceId")) {
            message.sequenceId(given.get("sequenceId").asLong());
        }
        given.path("properties").fields().forEachRemaining(one -> message.property(one.getKey(), one.getValue().asText()));
        JsonNode value = given.path("value");
        return message.value(value.isTextual() ? HEX.parseHex(value.asText()) : null);
    }

    /**
     * Receive so many messages, and with "rest" those that come without a pause. Then acknowledge some of them, each by
     * its place in the answer.
     */
    private void consume(JsonNode command, ArrayNode messages) throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(command.get("topic").asText())
                .subscriptionName(command.get("subscription").asText())
                .subscriptionType(SubscriptionType.valueOf(command.path("type").asText("Exclusive")))
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .isAckReceiptEnabled(true)
                .enableBatchIndexAcknowledgment(true)
                .acknowledgmentGroupTime(0, TimeUnit.MILLISECONDS)
                .subscribe()) {
            List<MessageId> ids = new ArrayList<>();
            for (int count = command.path("count").asInt(); count > 0; count--) {
                Message<byte[]> received = consumer.receive(RECEIVE_S, TimeUnit.SECONDS);
                if (received == null) {
                    throw new IllegalStateException("no further message after " + ids.size());
                }
                ids.add(received.getMessageId());
                messages.add(shown(received));
            }
            boolean isRestWanted = command.path("rest").asBoolean();
            Message<byte[]> message = isRestWanted ? consumer.receive(REST_S, TimeUnit.SECONDS) : null;
            while (message != null) {
                ids.add(message.getMessageId());
                messages.add(shown(message));
                message = consumer.receive(REST_S, TimeUnit.SECONDS);
            }
            List<CompletableFuture<?>> answers = new ArrayList<>();
            for (JsonNode place : command.path("individual")) {
                answers.add(consumer.acknowledgeAsync(ids.get(place.asInt())));
            }
            if (command.has("cumulative")) {
                answers.add(consumer.acknowledgeCumulativeAsync(ids.get(command.get("cumulative").asInt())));
            }
            CompletableFuture.allOf(answers.toArray(CompletableFuture[]::new)).get(ANSWER_S, TimeUnit.SECONDS);
        }
    }

    /** Read the topic to its end: from its beginning, or after a message, whose id comes as bytes. */
    private void read(String topic, JsonNode after, ArrayNode messages) throws Exception {
        MessageId start = after.isTextual()
                ? MessageId.fromByteArray(HEX.parseHex(after.asText())) : MessageId.earliest;
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(start).create()) {
            while (reader.hasMessageAvailable()) {
                messages.add(shown(reader.readNext()));
            }
        }
    }

    private ObjectNode shown(Message<byte[]> message) {
        ObjectNode shown = idOf(message.getMessageId());
        shown.put("value", message.getData() == null ? null : HEX.formatHex(message.getData()));
        if (message.getValue() == null) {
            shown.putNull("value");
        }
        shown.put("publishTime", message.getPublishTime());
        shown.put("producer", message.getProducerName());
        shown.put("sequenceId", message.getSequenceId());
        if (message.hasKey()) {
            shown.put("key", message.getKey());
            shown.put("isKeyBytes", message.hasBase64EncodedKey());
        }
        if (message.getOrderingKey() != null && message.getOrderingKey().length > 0) {
            shown.put("orderingKey", HEX.formatHex(message.getOrderingKey()));
        }
        if (message.getEventTime() != 0) {
            shown.put("eventTime", message.getEventTime());
        }
        if (!message.getProperties().isEmpty()) {
            shown.set("properties", json.valueToTree(message.getProperties()));
        }
        message.getIndex().ifPresent(index -> shown.put("index", index));
        message.getBrokerPublishTime().ifPresent(time -> shown.put("brokerPublishTime", time));
        return shown;
    }

    private ObjectNode idOf(MessageId id) {
        ObjectNode shown = json.createObjectNode();
        shown.put("id", id.toString());
        shown.put("bytes", HEX.formatHex(id.toByteArray()));
        if (id instanceof MessageIdAdv it) {
            shown.put("batchSize", it.getBatchSize());
        }
        return shown;
    }

    /** Make an id of its ledger, entry and partition, and for one of a batch the index and the size. */
    private static MessageId made(JsonNode given) {
        long ledger = given.get(0).asLong();
        long entry = given.get(1).asLong();
        int partition = given.get(2).asInt();
        if (given.size() == 3) {
            return new MessageIdImpl(ledger, entry, partition);
        }
        int index = given.get(3).asInt();
        int size = given.get(4).asInt();
        BitSet unacknowledged = new BitSet();
        unacknowledged.set(0, size);
        return new BatchMessageIdImpl(ledger, entry, partition, index, size, unacknowledged);
    }
}
