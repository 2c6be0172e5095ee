import de.bwaldvogel.mongo.MongoCollection;
import de.bwaldvogel.mongo.MongoDatabase;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.AbstractUniqueIndex;
import de.bwaldvogel.mongo.backend.CollectionOptions;
import de.bwaldvogel.mongo.backend.CursorRegistry;
import de.bwaldvogel.mongo.backend.Index;
import de.bwaldvogel.mongo.backend.IndexKey;
import de.bwaldvogel.mongo.backend.KeyValue;
import de.bwaldvogel.mongo.backend.Missing;
import de.bwaldvogel.mongo.backend.QueryResult;
import de.bwaldvogel.mongo.backend.h2.H2Backend;
import de.bwaldvogel.mongo.backend.h2.H2Collection;
import de.bwaldvogel.mongo.backend.h2.H2Database;
import de.bwaldvogel.mongo.bson.Document;
import de.bwaldvogel.mongo.wire.MongoDatabaseHandler;
import de.bwaldvogel.mongo.wire.MongoExceptionHandler;
import de.bwaldvogel.mongo.wire.MongoWireMessageEncoder;
import de.bwaldvogel.mongo.wire.MongoWireProtocolHandler;
import de.bwaldvogel.mongo.wire.MongoWireReplyEncoder;
import de.bwaldvogel.mongo.wire.message.MongoMessage;
import io.netty.bootstrap.ServerBootstrap;
import io.netty.channel.Channel;
import io.netty.channel.ChannelInitializer;
import io.netty.channel.ChannelOption;
import io.netty.channel.EventLoopGroup;
import io.netty.channel.MultiThreadIoEventLoopGroup;
import io.netty.channel.group.ChannelGroup;
import io.netty.channel.group.DefaultChannelGroup;
import io.netty.channel.nio.NioIoHandler;
import io.netty.channel.socket.nio.NioServerDomainSocketChannel;
import io.netty.util.concurrent.GlobalEventExecutor;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.Spliterator;
import java.util.Spliterators;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import java.util.stream.StreamSupport;
import org.h2.mvstore.Cursor;
import org.h2.mvstore.DataUtils;
import org.h2.mvstore.MVMap;
import org.h2.mvstore.MVStore;
import org.h2.mvstore.WriteBuffer;
import org.h2.mvstore.type.BasicDataType;
import org.h2.mvstore.type.ObjectDataType;

/**
 * Runs mongo-java-server on a file, with the isolation and durability that the library lacks.
 *
 * <p>Arguments: DATA_FILE SOCKET COMMIT_MS. The library has no authentication, so the server
 * listens only on a Unix domain socket, whose directory restricts access. With a COMMIT_MS of 0,
 * every command is durable before its reply.
 */
public final class MongoServerLauncher {

  private MongoServerLauncher() {}

  public static void main(String[] args) {
    long commitMillis = Long.parseLong(args[2]);
    Store store = new Store(Path.of(args[0]), commitMillis);
    Server server = new Server(new Backend(store, List.of(args)), Path.of(args[1]));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> shutDown(server, store), "shutdown"));
    store.startCommitting();
  }

  private static void shutDown(Server server, Store store) {
    server.stopListening();
    store.close();
    server.close();
  }

  /** The library's protocol on a Unix domain socket; the library itself listens only on TCP. */
  private static final class Server {
    private static final int BACKLOG = 100;

    private final ChannelGroup clients = new DefaultChannelGroup(GlobalEventExecutor.INSTANCE);
    private final Channel listening;

    Server(Backend backend, Path socket) {
      EventLoopGroup accepting = threads(1);
      EventLoopGroup serving = threads(backend.store.waitingThreads());
      ServerBootstrap bootstrap =
          new ServerBootstrap()
              .group(accepting, serving)
              .channel(NioServerDomainSocketChannel.class)
              .option(ChannelOption.SO_BACKLOG, BACKLOG)
              .childHandler(protocol(backend));
      listening = bootstrap.bind(UnixDomainSocketAddress.of(socket)).syncUninterruptibly().channel();
    }

    private static EventLoopGroup threads(int number) {
      return new MultiThreadIoEventLoopGroup(number, NioIoHandler.newFactory());
    }

    private ChannelInitializer<Channel> protocol(Backend backend) {
      return new ChannelInitializer<>() {
        @Override
        protected void initChannel(Channel client) {
          client
              .pipeline()
              .addLast(new MongoWireReplyEncoder(), new MongoWireMessageEncoder())
              .addLast(new MongoWireProtocolHandler())
              .addLast(new MongoDatabaseHandler(backend, clients), new MongoExceptionHandler());
        }
      };
    }

    void stopListening() {
      listening.close().syncUninterruptibly();
    }

    void close() {
      clients.close().syncUninterruptibly();
    }
  }

  /** The file, and the gate: the lock that serialises commands and commits. */
  private static final class Store {
    // Every commit is synced before the next one, so space that it replaced is soon free.
    private static final int RETENTION_MS = 2_000;
    private static final int COMPACT_BELOW_PERCENT = 50;
    private static final int COMPACT_BYTES = 2 * 1024 * 1024;
    private static final int COMPACT_ON_CLOSE_MS = 1_000;

    final MVStore file;
    final long commitMillis;
    final Object gate = new Object();
    private final Object committing = new Object();
    private final ScheduledExecutorService clock =
        Executors.newSingleThreadScheduledExecutor(task -> new Thread(task, "commit"));
    private long commands;
    private long durableCommands;

    Store(Path path, long commitMillis) {
      // H2's own commits may fall between the two maps that one command changes (record and
      // index), and would leave an inconsistent file after a kill.
      this.file = new MVStore.Builder().fileName(path.toString()).autoCommitDisabled().open();
      this.file.setRetentionTime(RETENTION_MS);
      this.commitMillis = commitMillis;
    }

    void startCommitting() {
      long everyMillis = commitMillis == 0 ? 1_000 : commitMillis;
      clock.scheduleWithFixedDelay(
          this::commitOrDie, everyMillis, everyMillis, TimeUnit.MILLISECONDS);
    }

    /** A group commit covers as many commands as there are threads to wait for it. */
    int waitingThreads() {
      return commitMillis == 0 ? 16 : 2;
    }

    /** Called with the gate held: the number of the last command that is not in the file yet. */
    long lastUnsaved() {
      return file.hasUnsavedChanges() ? ++commands : 0;
    }

    /** Waits until a command is on disk; the first to wait commits for all. */
    void awaitDurable(long command) {
      synchronized (committing) {
        if (durableCommands < command) {
          commit();
        }
      }
    }

    private void commit() {
      synchronized (committing) {
        long upTo;
        synchronized (gate) {
          upTo = commands;
          if (file.hasUnsavedChanges()) {
            file.commit();
          }
        }
        file.sync();
        durableCommands = upTo;
      }
    }

    private void commitOrDie() {
      try {
        if (file.hasUnsavedChanges()) {
          commit();
        }
        synchronized (gate) {
          file.compact(COMPACT_BELOW_PERCENT, COMPACT_BYTES);
        }
      } catch (RuntimeException broken) {
        // A store that cannot write must not continue to answer: the service starts a new one.
        broken.printStackTrace();
        Runtime.getRuntime().halt(70);
      }
    }

    void close() {
      stopCommitting();
      synchronized (gate) {
        file.close(COMPACT_ON_CLOSE_MS);
      }
    }

    private void stopCommitting() {
      // Never interrupt: that would close the file channel during a commit.
      clock.shutdown();
      try {
        clock.awaitTermination(30, TimeUnit.SECONDS);
      } catch (InterruptedException late) {
        Thread.currentThread().interrupt();
      }
    }
  }

  /** The library's backend, with the gate held for each command. */
  private static final class Backend extends H2Backend {
    // The library's constructor opens existing databases before our fields are set.
    private static MVStore file;

    private final Store store;
    private final List<String> arguments;

    Backend(Store store, List<String> arguments) {
      super(noted(store.file));
      this.store = store;
      this.arguments = arguments;
      version(new Protocol());
    }

    @Override
    protected MongoDatabase openOrCreateDatabase(String name) {
      return new Database(name, file, getCursorRegistry());
    }

    private static MVStore noted(MVStore opened) {
      file = opened;
      return opened;
    }

    @Override
    public Document handleMessage(MongoMessage message) {
      Document answer;
      long unsaved;
      synchronized (store.gate) {
        // The library changes documents in place and encodes replies after releasing its own
        // lock, so a reply would show later updates (or break): return a copy.
        answer = super.handleMessage(message).cloneDeeply();
        unsaved = store.commitMillis == 0 ? store.lastUnsaved() : 0;
      }
      if (unsaved > 0) {
        store.awaitDurable(unsaved);
      }
      return answer;
    }

    @Override
    public Document handleCommand(Channel channel, String database, String command, Document query) {
      switch (command) {
        case "hello":
          return super.handleCommand(channel, database, "ismaster", query)
              .append("isWritablePrimary", true);
        case "buildInfo":
        case "buildinfo":
          return super.handleCommand(channel, database, command, query)
              .append("implementation", "mongo-java-server")
              .append("storageEngines", List.of("h2"));
        case "getCmdLineOpts":
          return options();
        case "serverStatus":
          return super.handleCommand(channel, database, command, query)
              .append("metrics", metrics());
        default:
          return super.handleCommand(channel, database, command, query);
      }
    }

    @Override
    public void close() {
      // The library closes its backend even if it only failed to bind; the file is ours.
    }

    /** What MongoDB reports here. */
    private static Document metrics() {
      return new Document("queryExecutor", new Document("scannedObjects", Listing.scanned));
    }

    private Document options() {
      Document storage = new Document("dbPath", Path.of(arguments.get(0)).getParent().toString());
      Document parsed = new Document("storage", storage);
      return new Document("argv", new ArrayList<>(arguments))
          .append("parsed", parsed)
          .append("ok", 1.0);
    }
  }

  /** As MongoDB 5.0 reports it; the library has wire version 8, which newer drivers refuse. */
  private static final class Protocol implements MongoVersion {
    @Override
    public List<Integer> getVersionArray() {
      return List.of(5, 0, 0);
    }

    @Override
    public int getWireVersion() {
      return 13;
    }
  }

  /** Databases whose unique indexes compare keys, and serve conditions beyond their keys. */
  private static final class Database extends H2Database {
    private static final String COMPARED = "._compared_";

    Database(String name, MVStore file, CursorRegistry cursors) {
      super(name, file, cursors);
    }

    @Override
    protected Index<Object> openOrCreateUniqueIndex(
        String collection, String index, List<IndexKey> keys, boolean sparse) {
      MVMap<KeyValue, Object> map =
          Backend.file.openMap(
              compared(collection, index),
              new MVMap.Builder<KeyValue, Object>().keyType(new KeyType()));
      return new Compared(map, index, keys, sparse);
    }

    @Override
    protected void dropIndex(MongoCollection<Object> collection, String index) {
      super.dropIndex(collection, index);
      Backend.file.removeMap(compared(collection.getCollectionName(), index));
    }

    @Override
    protected MongoCollection<Object> openOrCreateCollection(
        String name, CollectionOptions options) {
      String full = getDatabaseName() + "." + name;
      return new Listing(
          this,
          name,
          options,
          Backend.file.openMap("databases." + full),
          Backend.file.openMap("meta." + full),
          cursorRegistry);
    }

    private String compared(String collection, String index) {
      return getDatabaseName() + "." + collection + COMPARED + index;
    }
  }

  /**
   * A collection that looks ids up in a set, and reads a range of ids as a range. The library
   * finds the documents by its index, and then scans the list of ids again for each of them; for a
   * range it examines every document, and sorts those that match.
   */
  private static final class Listing extends H2Collection {
    /** Documents examined since the start; changed only with the gate held. */
    static long scanned;

    private final MVMap<Object, Document> documents;
    private Document asked;
    private Document others = new Document();
    private Set<Object> ids = Set.of();

    Listing(
        MongoDatabase database,
        String name,
        CollectionOptions options,
        MVMap<Object, Document> documents,
        MVMap<String, Object> facts,
        CursorRegistry cursors) {
      super(database, name, options, documents, facts, cursors);
      this.documents = documents;
    }

    @Override
    protected QueryResult matchDocuments(
        Document query, Document order, int skip, int limit, int batch, Document fields) {
      boolean ascending = order == null || order.isEmpty() || isById(order, 1);
      if (!holdsTextIdsOnly() || !(ascending || isById(order, -1))) {
        return super.matchDocuments(query, order, skip, limit, batch, fields);
      }
      Stream<Document> range = range(query.get("_id"), ascending);
      return matchDocumentsFromStream(range, query, null, skip, limit, batch, fields);
    }

    private static boolean isById(Document order, int direction) {
      return order.keySet().equals(Set.of("_id")) && Integer.valueOf(direction).equals(order.get("_id"));
    }

    /** In the map, strings sort as in MongoDB, and the keys of a type are adjacent. */
    private boolean holdsTextIdsOnly() {
      return documents.firstKey() instanceof String && documents.lastKey() instanceof String;
    }

    /** Documents by id, from bound to bound, inclusive; readers check the query again. */
    private Stream<Document> range(Object condition, boolean ascending) {
      String lowest = bound(condition, "$gt", "$gte");
      String highest = bound(condition, "$lt", "$lte");
      Cursor<Object, Document> cursor =
          ascending
              ? documents.cursor(lowest, highest, false)
              : documents.cursor(highest, lowest, true);
      Spliterator<Object> keys = Spliterators.spliteratorUnknownSize(cursor, Spliterator.ORDERED);
      return StreamSupport.stream(keys, false).map(key -> cursor.getValue());
    }

    private static String bound(Object condition, String exclusive, String inclusive) {
      if (!(condition instanceof Document)) {
        return null;
      }
      Document range = (Document) condition;
      Object bound = range.getOrDefault(exclusive, range.get(inclusive));
      return bound instanceof String ? (String) bound : null;
    }

    @Override
    protected boolean documentMatchesQuery(Document document, Document query) {
      scanned++;
      if (query != asked) {
        note(query);
      }
      Object id = document.get("_id");
      boolean listed = id instanceof String && ids.contains(id);
      return super.documentMatchesQuery(document, listed ? others : query);
    }

    private void note(Document query) {
      asked = query;
      ids = idsOf(query.get("_id"));
      others = new Document();
      query.forEach(others::put);
      others.remove("_id");
    }

    private static Set<Object> idsOf(Object condition) {
      if (condition instanceof Document && ((Document) condition).keySet().equals(Set.of("$in"))) {
        Object listed = ((Document) condition).get("$in");
        return listed instanceof List ? new HashSet<>((List<?>) listed) : Set.of();
      }
      return Set.of();
    }
  }

  /**
   * An index whose keys are compared by value, and which is queried only for its own keys. The
   * library uses an index only if it has all keys of the query: every conditional update would read
   * the whole collection; the remaining conditions are checked on the documents found in any case.
   */
  private static final class Compared extends AbstractUniqueIndex<Object> {
    private final MVMap<KeyValue, Object> map;

    Compared(MVMap<KeyValue, Object> map, String name, List<IndexKey> keys, boolean sparse) {
      super(name, keys, sparse);
      this.map = map;
    }

    private Document narrowed(Document query) {
      Document narrowed = new Document();
      for (String key : keys()) {
        if (query.containsKey(key)) {
          narrowed.append(key, query.get(key));
        }
      }
      return narrowed;
    }

    @Override
    public synchronized boolean canHandle(Document query) {
      return super.canHandle(narrowed(query));
    }

    @Override
    public synchronized Iterable<Object> getPositions(Document query) {
      return super.getPositions(narrowed(query));
    }

    @Override
    protected Object getPosition(KeyValue key) {
      return map.get(key);
    }

    @Override
    protected boolean putKeyPosition(KeyValue key, Object position) {
      return map.putIfAbsent(key, Missing.ofNullable(position)) == null;
    }

    @Override
    protected Object removeDocument(KeyValue key) {
      return map.remove(key);
    }

    @Override
    protected Iterable<Map.Entry<KeyValue, Object>> getIterable() {
      return map.entrySet();
    }

    @Override
    public long getCount() {
      return map.sizeAsLong();
    }

    @Override
    public long getDataSize() {
      return getCount();
    }
  }

  /**
   * Keys of indexes, compared value by value. The library leaves them to Java's serialisation, so
   * each of the dozen comparisons of a look-up serialises both keys: a fifth of a millisecond each.
   */
  private static final class KeyType extends BasicDataType<KeyValue> {
    private final ObjectDataType values = new ObjectDataType();

    @Override
    public int compare(KeyValue left, KeyValue right) {
      int common = Math.min(left.size(), right.size());
      for (int i = 0; i < common; i++) {
        int order = values.compare(left.get(i), right.get(i));
        if (order != 0) {
          return order;
        }
      }
      return Integer.compare(left.size(), right.size());
    }

    @Override
    public int getMemory(KeyValue key) {
      return key.stream().mapToInt(values::getMemory).sum();
    }

    @Override
    public void write(WriteBuffer buffer, KeyValue key) {
      buffer.putVarInt(key.size());
      key.stream().forEach(value -> values.write(buffer, value));
    }

    @Override
    public KeyValue read(ByteBuffer buffer) {
      Object[] read = new Object[DataUtils.readVarInt(buffer)];
      Arrays.setAll(read, i -> values.read(buffer));
      return new KeyValue(read);
    }

    @Override
    public KeyValue[] createStorage(int size) {
      return new KeyValue[size];
    }
  }
}
