package fds.storage;

import io.delta.storage.S3SingleDriverLogStore;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.FileAlreadyExistsException;
import java.util.Arrays;
import java.util.Collections;
import java.util.Iterator;
import java.util.Set;
import java.util.UUID;
import java.util.WeakHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * A Delta log store for S3 whose commits are atomic across drivers, by S3's own conditional write.
 *
 * <p><b>Contract.</b> {@code write(path, …, overwrite=false)} creates the object whole if there is none, whoever else
 * writes it at the same time, and throws {@link FileAlreadyExistsException} if there is one. It asks S3A for that file
 * by file ({@code If-None-Match: *}); no setting of S3A makes an ordinary {@code create(path, false)} conditional.
 * Where that is not to be had (Hadoop before 3.4.2, another file system, a store that takes the header and ignores it)
 * it refuses, and never falls back to a put that could overwrite.
 *
 * <p><b>A lost answer.</b> S3A and the AWS SDK repeat a request whose answer did not come. If the first one was
 * carried out, the repeated one is told "exists". So each write carries an id of its own as metadata of the object, and
 * whatever goes wrong on close is settled by looking whose object is there: mine, so it is written; another's, so it
 * exists. If none is there, nobody knows (the request may still be on its way), and the error is passed on.
 *
 * <p>All writers of a table must use a log store that never overwrites a commit. Reading, listing and
 * {@code overwrite=true} ({@code _last_checkpoint}) are those of Delta's own log store for S3.
 */
public final class S3ConditionalLogStore extends S3SingleDriverLogStore {
    /** S3A's option of one file; also the name under which S3A says that it has it. */
    private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

    private static final String ABORTABLE = "fs.capability.outputstream.abortable";
    private static final String WRITE_ID = "fds-write-id";
    private static final String WRITE_ID_OPTION = "fs.s3a.create.header." + WRITE_ID;
    private static final String WRITE_ID_ATTRIBUTE = "header." + WRITE_ID;

    /** Sorts before the commits, so that no listing of Delta's comes across it. */
    private static final String PROBE = ".fds-put-if-absent";

    private static final String PROBE_TEXT =
            "FDS asked here whether this store honours If-None-Match. This file may be deleted.";

    /** An object may become visible a moment after S3 has answered 409 (conflict) to the other writer. */
    private static final long[] LOOK_AGAIN_AFTER_MILLIS = {0, 100, 400, 1500};

    /** File systems that were seen to refuse a second write. */
    private static final Set<FileSystem> PROVEN =
            Collections.synchronizedSet(Collections.newSetFromMap(new WeakHashMap<>()));

    public S3ConditionalLogStore(Configuration hadoopConf) {
        super(hadoopConf);
    }

    @Override
    public void write(Path path, Iterator<String> actions, Boolean overwrite, Configuration hadoopConf)
            throws IOException {
        if (overwrite) {
            super.write(path, actions, true, hadoopConf);
            return;
        }
        FileSystem fs = path.getFileSystem(hadoopConf);
        prove(fs, path.getParent());
        putIfAbsent(fs, path, actions);
    }

    /**
     * Finds out whether commits below {@code logFolder} can be atomic: whether the file system offers conditional
     * creation, and whether the store behind it obeys. The first question of a bucket writes a small file into the
     * folder, which stays there; later ones write nothing.
     *
     * @param logFolder a table's {@code _delta_log}; need not exist
     * @throws UnsupportedOperationException if not, saying what is missing
     * @throws IOException if the store cannot be reached
     */
    public static void check(Path logFolder, Configuration hadoopConf) throws IOException {
        prove(logFolder.getFileSystem(hadoopConf), logFolder);
    }

    private static void prove(FileSystem fs, Path logFolder) throws IOException {
        if (PROVEN.contains(fs)) {
            return;
        }
        Path probe = new Path(logFolder, PROBE);
        for (String capability : new String[] {CONDITIONAL, ABORTABLE}) {
            if (!fs.hasPathCapability(probe, capability)) {
                throw new UnsupportedOperationException(
                        "the file system of " + logFolder + " (" + fs.getClass().getName() + ") does not offer "
                                + capability + ", which commits that are atomic across drivers need: it takes S3A of "
                                + "Hadoop 3.4.2 or newer with fs.s3a.create.conditional.enabled not set to false");
            }
        }
        // found there, or put there and then found there: either way somebody was refused
        if (isPutIfAbsent(fs, probe) && isPutIfAbsent(fs, probe)) {
            throw new UnsupportedOperationException(
                    "the store of " + logFolder + " wrote " + PROBE + " twice although it was told to write it only if "
                            + "it is not there (If-None-Match: *): two drivers would overwrite each other's commits");
        }
        PROVEN.add(fs);
    }

    private static boolean isPutIfAbsent(FileSystem fs, Path path) throws IOException {
        try {
            putIfAbsent(fs, path, Arrays.asList(PROBE_TEXT).iterator());
            return true;
        } catch (FileAlreadyExistsException e) {
            return false;
        }
    }

    private static void putIfAbsent(FileSystem fs, Path path, Iterator<String> lines) throws IOException {
        String id = UUID.randomUUID().toString();
        FSDataOutputStream stream = open(fs, path, id);
        try {
            while (lines.hasNext()) {
                stream.write((lines.next() + "\n").getBytes(StandardCharsets.UTF_8));
            }
        } catch (IOException | RuntimeException | Error e) {
            // closing it would publish the half of a commit
            abort(stream, e);
            throw e;
        }
        try {
            stream.close();
        } catch (IOException e) {
            settle(fs, path, id, e);
        } catch (RuntimeException e) {
            settle(fs, path, id, new IOException(e));
        }
    }

    private static FSDataOutputStream open(FileSystem fs, Path path, String id) throws IOException {
        FSDataOutputStreamBuilder<?, ?> builder = fs.createFile(path);
        builder.overwrite(true); // what is there is the store's to say, not a look beforehand's
        builder.must(CONDITIONAL, "true");
        builder.must(WRITE_ID_OPTION, id);
        try {
            return builder.build();
        } catch (org.apache.hadoop.fs.FileAlreadyExistsException e) {
            throw exists(path, e);
        } catch (IllegalArgumentException | UnsupportedOperationException e) {
            throw new IOException("the file system of " + path + " cannot create it conditionally: " + e.getMessage(), e);
        }
    }

    private static void abort(FSDataOutputStream stream, Throwable cause) {
        try {
            stream.abort();
        } catch (RuntimeException e) {
            cause.addSuppressed(e);
        }
    }

    /** Returns if the object is there and mine; else throws. */
    private static void settle(FileSystem fs, Path path, String id, IOException failure) throws IOException {
        for (long millis : LOOK_AGAIN_AFTER_MILLIS) {
            try {
                Thread.sleep(millis);
                String found = writer(fs, path);
                if (found == null) {
                    continue;
                }
                if (found.equals(id)) {
                    return;
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
                throw failure;
            } catch (IOException | RuntimeException e) {
                failure.addSuppressed(e);
                throw failure;
            }
            throw exists(path, failure);
        }
        throw failure;
    }

    /** Returns the id of who wrote the object, "" for another kind of writer, {@code null} if there is no object. */
    private static String writer(FileSystem fs, Path path) throws IOException {
        try {
            // S3A answers for the attributes of "path/" too
            if (!fs.getFileStatus(path).isFile()) {
                return null;
            }
            byte[] id = fs.getXAttrs(path).get(WRITE_ID_ATTRIBUTE);
            return id == null ? "" : new String(id, StandardCharsets.UTF_8);
        } catch (FileNotFoundException e) {
            return null;
        }
    }

    private static FileAlreadyExistsException exists(Path path, Exception cause) {
        FileAlreadyExistsException e = new FileAlreadyExistsException(path.toString());
        e.initCause(cause);
        return e;
    }
}
