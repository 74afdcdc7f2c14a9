package interop;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.common.policies.data.ClusterData;
import org.apache.pulsar.common.policies.data.RetentionPolicies;
import org.apache.pulsar.common.policies.data.TenantInfo;

/**
 * Runs a Pulsar broker in this process, and does with one topic of it what the lines of standard input say.
 *
 * <p>Argument: host and port of the metadata. Each message has its number and a pattern as payload, so that a wrong one
 * is recognised. The answers are lines of standard output: "acked" and "got" with the number and the position of one
 * message, and a line with the command's name when it is done.
 */
public final class Topic {
    private static final String NAMESPACE = "public/interop";
    private static final String TOPIC = "persistent://" + NAMESPACE + "/topic";
    private static final String OTHER_TOPIC = TOPIC + "-2";
    private static final int SIZE = 1024;
    private static final int IN_FLIGHT = 100;
    private static final int MESSAGES_OF_A_BATCH = 10;

    private final PulsarAdmin admin;
    private final PulsarClient client;

    private Topic(PulsarAdmin admin, PulsarClient client) {
        this.admin = admin;
        this.client = client;
    }

    public static void main(String[] arguments) throws Exception {
        // The broker drops what a producer sends a second time because it has not seen the first answer.
        PulsarService broker = Broker.start(arguments[0], Map.of("brokerDeduplicationEnabled", "true"));
        try (PulsarClient client = PulsarClient.builder().serviceUrl(broker.getBrokerServiceUrl()).build()) {
            Topic topic = new Topic(broker.getAdminClient(), client);
            say("ready");
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                String[] words = line.split(" ");
                topic.run(words);
                say(words[0]);
            }
        }
        broker.close();
        System.exit(0);
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "create" -> create();
            case "produce" -> produce(Integer.parseInt(words[1]), Integer.parseInt(words[2]), words[3].equals("batched"));
            case "consume" -> consume();
            case "unload" -> admin.topics().unload(TOPIC);
            case "read" -> read();
            case "delete" -> admin.topics().delete(TOPIC, true);
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /**
     * Create the topic, with a subscription that has read nothing. Its ledgers stay when everything was consumed. The
     * other topic keeps its ledger when the first is deleted: bookies do not believe metadata without any ledger.
     */
    private void create() throws Exception {
        admin.clusters().createCluster(Broker.CLUSTER, ClusterData.builder().build());
        admin.tenants().createTenant("public", TenantInfo.builder().allowedClusters(Set.of(Broker.CLUSTER)).build());
        admin.namespaces().createNamespace(NAMESPACE, 1);
        admin.namespaces().setRetention(NAMESPACE, new RetentionPolicies(-1, -1));
        admin.topics().createNonPartitionedTopic(TOPIC);
        admin.topics().createNonPartitionedTopic(OTHER_TOPIC);
        admin.topics().createSubscription(TOPIC, "subscription", MessageId.earliest);
    }

    private void produce(int first, int count, boolean isBatched) throws Exception {
        try (Producer<byte[]> producer = client.newProducer()
                .topic(TOPIC)
                .producerName("producer")
                .enableBatching(isBatched)
                .batchingMaxMessages(MESSAGES_OF_A_BATCH)
                .batchingMaxPublishDelay(5, TimeUnit.MILLISECONDS)
                .maxPendingMessages(IN_FLIGHT)
                .blockIfQueueFull(true)
                .sendTimeout(0, TimeUnit.SECONDS)
                .create()) {
            List<CompletableFuture<?>> answers = new ArrayList<>();
            for (int number = first; number < first + count; number++) {
                int sent = number;
                answers.add(producer.newMessage().sequenceId(sent).value(payload(sent)).sendAsync().handle((id, error) -> {
                    say(error == null ? "acked " + sent + position(id) : "failed " + sent + " " + error);
                    return null;
                }));
            }
            producer.flush();
            waitFor(answers);
        }
    }

    private static void waitFor(List<CompletableFuture<?>> answers) throws Exception {
        CompletableFuture.allOf(answers.toArray(CompletableFuture[]::new)).get();
    }

    /** Consume everything that the topic has now. */
    private void consume() throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topic(TOPIC)
                .subscriptionName("subscription")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .receiverQueueSize(IN_FLIGHT)
                .isAckReceiptEnabled(true)
                .subscribe()) {
            List<CompletableFuture<?>> answers = new ArrayList<>();
            MessageIdAdv last = (MessageIdAdv) consumer.getLastMessageIds().get(0);
            Message<byte[]> message;
            do {
                message = consumer.receive();
                say(found(message));
                answers.add(consumer.acknowledgeAsync(message));
            } while (((MessageIdAdv) message.getMessageId()).compareTo(last) < 0);
            waitFor(answers);
        }
    }

    /** Read the topic from its beginning to its end. */
    private void read() throws Exception {
        try (Reader<byte[]> reader = client.newReader()
                .topic(TOPIC)
                .startMessageId(MessageId.earliest)
                .create()) {
            while (reader.hasMessageAvailable()) {
                say(found(reader.readNext()));
            }
        }
    }

    private static String found(Message<byte[]> message) {
        int number = ByteBuffer.wrap(message.getData()).getInt();
        boolean isRight = Arrays.equals(message.getData(), payload(number)) && message.getSequenceId() == number;
        return (isRight ? "got " : "wrong ") + number + position(message.getMessageId());
    }

    /** The position of a message; a broker that has dropped a repetition does not know it, and says -1. */
    private static String position(MessageId id) {
        MessageIdAdv it = (MessageIdAdv) id;
        return " " + it.getLedgerId() + " " + it.getEntryId() + " " + it.getBatchIndex();
    }

    private static byte[] payload(int number) {
        ByteBuffer bytes = ByteBuffer.allocate(SIZE);
        bytes.putInt(number);
        while (bytes.hasRemaining()) {
            bytes.put((byte) (number * 31 + bytes.position() * 7));
        }
        return bytes.array();
    }

    private static void say(String line) {
        synchronized (System.out) {
            System.out.println(line);
        }
    }
}
