import java.net.InetSocketAddress;
import org.apache.hadoop.hive.conf.HiveConf;
import org.apache.hadoop.hive.metastore.*;
import org.apache.thrift.protocol.TBinaryProtocol;
import org.apache.thrift.server.TThreadPoolServer;
import org.apache.thrift.transport.TServerSocket;

/**
 * A Hive metastore on loopback, since Hive 2.3's own main listens on all interfaces. Argument: its folder.
 *
 * <p>Prints its port once it is ready, and ends when its standard input does.
 */
public class Metastore {
  public static void main(String[] arguments) throws Exception {
    HiveConf conf = new HiveConf(Metastore.class);
    conf.set("hive.async.log.enabled", "false");
    conf.set("datanucleus.schema.autoCreateAll", "true");
    conf.set("hive.metastore.schema.verification", "false");
    conf.set("javax.jdo.option.ConnectionURL", "jdbc:derby:;databaseName=" + arguments[0] + "/db;create=true");
    conf.set("hive.metastore.warehouse.dir", "file://" + arguments[0] + "/warehouse");
    IHMSHandler handler =
        RetryingHMSHandler.getProxy(conf, new HiveMetaStore.HMSHandler("metastore", conf, false), false);
    TServerSocket socket = new TServerSocket(new InetSocketAddress("127.0.0.1", 0));
    Thread watcher = new Thread(() -> {
      try {
        while (System.in.read() >= 0) {}
      } catch (java.io.IOException closed) {
        // the same as its end
      }
      Runtime.getRuntime().halt(0);
    });
    watcher.setDaemon(true);
    watcher.start();
    System.out.println("port " + socket.getServerSocket().getLocalPort());
    System.out.flush();
    new TThreadPoolServer(
            new TThreadPoolServer.Args(socket)
                .processor(new TSetIpAddressProcessor<IHMSHandler>(handler))
                .protocolFactory(new TBinaryProtocol.Factory())
                .maxWorkerThreads(50))
        .serve();
  }
}
