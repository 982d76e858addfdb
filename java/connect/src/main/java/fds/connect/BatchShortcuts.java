package fds.connect;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.lang.reflect.Field;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.connect.planner.SparkConnectPlanner;
import org.apache.spark.sql.connect.plugin.RelationPlugin;
import org.apache.spark.sql.delta.DeltaLog;
import org.apache.spark.sql.delta.DummySnapshot;
import org.apache.spark.sql.delta.Snapshot;
import org.apache.spark.sql.delta.VersionChecksum;
import org.apache.spark.sql.delta.actions.Action;
import org.apache.spark.sql.delta.actions.AddFile;
import org.apache.spark.sql.delta.actions.Metadata;
import org.apache.spark.sql.delta.actions.Protocol;
import org.apache.spark.sql.delta.actions.SetTransaction;
import scala.collection.immutable.Seq;

/**
 * Saves a Spark Connect server the table states that a small batch does not need.
 *
 * <p>A client in the driver's own JVM calls Delta for that, see spark/application/batch_rows.py and
 * spark/sink_log/sink_transactions.py, which say why and when. This does the same for a client elsewhere. A request is
 * JSON in a StringValue. Whatever is unexpected is an error, after which the client takes Spark's public way.
 */
public final class BatchShortcuts implements RelationPlugin {
  private static final String STRING_VALUE = "type.googleapis.com/google.protobuf.StringValue";
  private static final ObjectMapper JSON = new ObjectMapper();

  /** The first actions of a manifest, before the files. */
  private static final int HEAD = 2;

  /** The bit of a snapshot that says that its transactions are known; 0: not looked for yet. */
  private static volatile int bit;

  @Override
  public Optional<LogicalPlan> transform(byte[] relation, SparkConnectPlanner planner) {
    JsonNode request = request(relation);
    if (request == null) {
      return Optional.empty();
    }
    try {
      String path = request.get("path").textValue();
      DeltaLog log = DeltaLog.forTable(planner.session(), path);
      switch (request.get("fds").textValue()) {
        case "rows":
          return Optional.of(rows(log, request.get("files").intValue(), planner));
        case "transactions":
          giveTransactions(log, request);
          return Optional.of(planner.session().range(1).logicalPlan());
        default:
          throw new IllegalArgumentException("unknown request " + request);
      }
    } catch (ReflectiveOperationException | LinkageError error) {
      // an Error would end the server's thread without an answer
      throw new IllegalStateException("another Delta: " + error, error);
    }
  }

  /** Returns the plan of all rows of a manifest, whose one commit lists so many files. */
  private static LogicalPlan rows(DeltaLog log, int files, SparkConnectPlanner planner) {
    Seq<Action> actions =
        log.getChanges(0, log.getChanges$default$2(), log.getChanges$default$3()).next()._2();
    if (actions.size() != HEAD + files
        || !(actions.apply(0) instanceof Protocol)
        || !(actions.apply(1) instanceof Metadata)) {
      throw new IllegalStateException("not a manifest of " + files + " files: " + log.dataPath());
    }
    @SuppressWarnings("unchecked")
    Seq<AddFile> added = (Seq<AddFile>) (Seq<?>) actions.drop(HEAD);
    Dataset<Row> frame =
        (Dataset<Row>)
            log.createDataFrame(
                log.unsafeVolatileSnapshot(),
                added,
                log.createDataFrame$default$3(),
                log.createDataFrame$default$4());
    if (frame.sparkSession() != planner.session()) {
      throw new IllegalStateException("Delta has planned in another session");
    }
    return frame.logicalPlan();
  }

  /** Puts the transactions of a version where Delta keeps the result of its look-up, if its checksum has them. */
  private static void giveTransactions(DeltaLog log, JsonNode request) throws ReflectiveOperationException {
    Snapshot snapshot = log.unsafeVolatileSnapshot();
    long version = request.get("version").longValue();
    if (snapshot.version() != version || snapshot.checksumOpt().isEmpty()) {
      throw new IllegalStateException("at version " + snapshot.version() + ", not " + version);
    }
    VersionChecksum checksum = snapshot.checksumOpt().get();
    if (checksum.setTransactions().isEmpty()) {
      throw new IllegalStateException("the checksum of version " + version + " has no transactions");
    }
    Map<String, Object> versions = new HashMap<>();
    for (SetTransaction one :
        scala.jdk.javaapi.CollectionConverters.asJava(checksum.setTransactions().get())) {
      versions.put(one.appId(), one.version());
    }
    JsonNode newest = request.get("newest");
    Object expected = newest.isNull() ? null : (Object) newest.longValue();
    boolean isTrusted =
        checksum.numFiles() == request.get("files").longValue()
            && checksum.tableSizeBytes() == request.get("bytes").longValue()
            && Objects.equals(versions.get(request.get("app").textValue()), expected);
    Field transactions = field("transactions");
    Field bits = field("bitmap$0");
    int known = knownBit(log, transactions, bits);
    synchronized (snapshot) {
      if (!isTrusted) {
        // they may be there already, given for another stream
        bits.setInt(snapshot, bits.getInt(snapshot) & ~known);
        throw new IllegalStateException("the checksum of version " + version + " is not that of the log");
      }
      if ((bits.getInt(snapshot) & known) == 0) {
        transactions.set(
            snapshot,
            scala.collection.immutable.Map.from(
                scala.jdk.javaapi.CollectionConverters.asScala(versions)));
        bits.setInt(snapshot, bits.getInt(snapshot) | known);
      }
    }
  }

  private static Field field(String name) throws NoSuchFieldException {
    Field found = Snapshot.class.getDeclaredField(name);
    found.setAccessible(true);
    return found;
  }

  /** Returns the bit that the look-up in an empty snapshot sets, which takes no Spark job. */
  private static int knownBit(DeltaLog log, Field transactions, Field bits) throws ReflectiveOperationException {
    if (bit == 0) {
      Snapshot empty = new DummySnapshot(log.logPath(), log);
      empty.setTransactions();
      int before = bits.getInt(empty);
      boolean isEmpty = empty.transactions().isEmpty();
      int changed = bits.getInt(empty) ^ before;
      if (Integer.bitCount(changed) != 1 || transactions.get(empty) == null || !isEmpty) {
        throw new IllegalStateException("a look-up sets the bits " + Integer.toBinaryString(changed));
      }
      bit = changed;
    }
    return bit;
  }

  /** Returns the request in the bytes of an Any, or null if they are not one of FDS. */
  private static JsonNode request(byte[] relation) {
    try {
      Map<Integer, byte[]> any = fields(relation);
      byte[] kind = any.get(1);
      if (kind == null || !new String(kind, StandardCharsets.UTF_8).equals(STRING_VALUE)) {
        return null;
      }
      JsonNode found = JSON.readTree(fields(any.getOrDefault(2, new byte[0])).getOrDefault(1, new byte[0]));
      return found != null && found.path("fds").isTextual() ? found : null;
    } catch (IOException | RuntimeException another) {
      return null;
    }
  }

  /** Returns the fields of a protobuf message that has only fields of bytes. */
  private static Map<Integer, byte[]> fields(byte[] message) {
    Map<Integer, byte[]> found = new HashMap<>();
    ByteBuffer rest = ByteBuffer.wrap(message);
    while (rest.hasRemaining()) {
      int tag = number(rest);
      byte[] value = new byte[number(rest)];
      rest.get(value);
      if ((tag & 7) != 2) {
        throw new IllegalArgumentException("a field of another type");
      }
      found.put(tag >>> 3, value);
    }
    return found;
  }

  private static int number(ByteBuffer from) {
    int value = 0;
    for (int shift = 0; ; shift += 7) {
      byte next = from.get();
      value |= (next & 0x7f) << shift;
      if (next >= 0) {
        return value;
      }
    }
  }
}
