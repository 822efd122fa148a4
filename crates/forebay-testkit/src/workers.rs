//! Eight programs that work without a pause and check every byte.

use crate::layer::{AT, Layer, Talker};

/// Four writers and four readers under way in a layer.
pub struct Workers {
    writers: Vec<Talker>,
    readers: Vec<Talker>,
}

impl Workers {
    /// Starts them.
    pub fn start(layer: &Layer, seed: u64) -> Workers {
        let worker = layer.compile("worker");
        let fixed: Vec<u8> =
            (0..8u32 << 20).map(|i| (u64::from(i).wrapping_mul(2_654_435_761) as u32 >> 13) as u8).collect();
        std::fs::write(layer.export().join("fixed"), fixed).expect("a file to read");
        for n in 0..4 {
            let pages = vec![0u8; 2 * 32 * 16 * 4096];
            std::fs::write(layer.export().join(format!("data.{n}")), pages).expect("a file to write");
        }
        let start = |what: &str, n: usize| {
            let mut command = layer.command(&worker, n);
            command.args([what, AT, &n.to_string(), &seed.to_string()]);
            Talker::start(command)
        };
        Workers {
            writers: (0..4).map(|n| start("write", n)).collect(),
            readers: (0..4).map(|n| start("read", n)).collect(),
        }
    }

    /// Ends the programs and looks at what they left, past the layer.
    pub fn finish(self, layer: &Layer) {
        for talker in self.readers {
            print!("reader: {}", talker.finish());
        }
        for (n, talker) in self.writers.into_iter().enumerate() {
            let said = talker.finish();
            print!("writer: {said}");
            for thread in 0..2 {
                let line = said
                    .lines()
                    .find(|l| l.starts_with(&format!("thread {thread}:")))
                    .expect("a thread's line");
                let words: Vec<&str> = line.split_whitespace().collect();
                let records: usize = words[4].parse().expect("a count");
                let want: String = (0..records).map(|r| format!("record {n}.{thread}.{r}.\n")).collect();
                let log = std::fs::read_to_string(layer.export().join(format!("log.{n}.{thread}")))
                    .expect("the log");
                assert!(
                    log == want,
                    "writer {n}, thread {thread}: {records} appends were acknowledged once each"
                );
                assert!(words[2].parse::<u64>().expect("a count") > 0, "it wrote");
            }
        }
    }
}
