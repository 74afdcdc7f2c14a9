package interop;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.NoSuchFileException;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** Whole directories. */
final class Trees {
    private Trees() {
    }

    /** Copies the ledgers before the journals, so that an entry that is being added comes with the journal or not at all. */
    static void copyLive(Path from, Path to) throws IOException {
        for (String part : new String[] {"ledgers", "journal"}) {
            for (Path file : list(from.resolve(part))) {
                copy(file, to.resolve(from.relativize(file)));
            }
        }
    }

    private static void copy(Path file, Path to) throws IOException {
        if (Files.isDirectory(file)) {
            Files.createDirectories(to);
            return;
        }
        try {
            Files.copy(file, to);
        } catch (NoSuchFileException gone) {
            // RocksDB deletes obsolete files at any time.
        }
    }

    static void delete(Path directory) throws IOException {
        List<Path> found = list(directory);
        for (Path one : found.stream().sorted(Comparator.reverseOrder()).toList()) {
            Files.delete(one);
        }
    }

    private static List<Path> list(Path directory) throws IOException {
        try (Stream<Path> found = Files.walk(directory)) {
            return found.toList();
        }
    }
}
