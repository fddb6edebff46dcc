//! The plugin's arguments.

use crate::gather::CLASSES;

/// A text, and the file that says which of it has been translated: a byte for each byte.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cover {
    /// Physical addresses `[start, end)`.
    pub text: (u64, u64),
    /// Physical address of the word that counts new instructions.
    pub news: u64,
    /// The file.
    pub file: String,
}

/// See the crate's documentation for their meaning.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// File to write.
    pub out: String,
    /// File that backs the machine's RAM.
    pub ram: Option<String>,
    /// RAM from this file offset on lies at 4 GiB.
    pub split: u64,
    /// Class names.
    pub names: Vec<String>,
    /// Physical ranges `[start, end)` and their class.
    pub ranges: Vec<(u64, u64, usize)>,
    /// Event id and the physical address of an instruction that makes it.
    pub watch: Vec<(u16, u64)>,
    /// Physical addresses of 64-bit words that every event carries.
    pub words: Vec<u64>,
    /// Text with a record of its translation, and the record's file.
    pub cover: Vec<Cover>,
    /// Socket of the process that stops the machine.
    pub control: Option<String>,
    /// Answer of QEMU's VMware port: TSC in kHz, local timer in Hz.
    pub clocks: Option<(u64, u64)>,
}

impl Options {
    /// From `key=value` arguments.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Self { split: u64::MAX, ..Self::default() };
        for argument in arguments {
            let (key, value) = argument.split_once('=').unwrap_or((argument, ""));
            match key {
                "out" => options.out = value.to_owned(),
                "ram" => options.ram = Some(value.to_owned()),
                "split" => options.split = number(value)?,
                "range" => options.range(value)?,
                "watch" => options.watch(value)?,
                "words" => options.words(value)?,
                "cover" => options.cover(value)?,
                "control" => options.control = Some(value.to_owned()),
                "clocks" => options.clocks = Some(pair(value)?),
                _ => return Err(format!("unknown argument {argument:?}")),
            }
        }
        if options.out.is_empty() && options.control.is_none() {
            return Err("out=FILE is missing".into());
        }
        let counts =
            !(options.ranges.is_empty() && options.watch.is_empty() && options.words.is_empty());
        if options.ram.is_none() && (counts || !options.cover.is_empty()) {
            return Err("range, watch, words and cover need ram=FILE".into());
        }
        if options.control.is_some() && (counts || !options.cover.is_empty()) {
            return Err("a machine that is stopped counts and covers nothing".into());
        }
        if counts && !options.cover.is_empty() {
            return Err("where text is covered, nothing is counted".into());
        }
        Ok(options)
    }

    /// Class of a physical address.
    #[must_use]
    pub fn class(&self, pa: u64) -> usize {
        let hit = self.ranges.iter().find(|(start, end, _)| (*start..*end).contains(&pa));
        hit.map_or(0, |(_, _, class)| *class)
    }

    fn range(&mut self, value: &str) -> Result<(), String> {
        let bad = || format!("range={value:?}: expected NAME:START-END");
        let (name, span) = value.split_once(':').ok_or_else(bad)?;
        let (start, end) = span.split_once('-').ok_or_else(bad)?;
        let class = match self.names.iter().position(|known| known == name) {
            Some(n) => n + 1,
            None if self.names.len() + 1 == CLASSES => {
                return Err(format!("more than {} range names", CLASSES - 1));
            }
            None => {
                self.names.push(name.to_owned());
                self.names.len()
            }
        };
        self.ranges.push((number(start)?, number(end)?, class));
        Ok(())
    }

    fn words(&mut self, value: &str) -> Result<(), String> {
        let bad = || format!("words={value:?}: expected ADDRESS:COUNT");
        let (address, count) = value.split_once(':').ok_or_else(bad)?;
        let (address, count) = (number(address)?, number(count)?);
        self.words.extend((0..count).map(|n| address + n * 8));
        Ok(())
    }

    fn cover(&mut self, value: &str) -> Result<(), String> {
        let bad = || format!("cover={value:?}: expected START-END@NEWS:FILE");
        let (text, rest) = value.split_once('@').ok_or_else(bad)?;
        let (start, end) = text.split_once('-').ok_or_else(bad)?;
        let (news, file) = rest.split_once(':').ok_or_else(bad)?;
        let text = (number(start)?, number(end)?);
        if text.0 >= text.1 || file.is_empty() {
            return Err(bad());
        }
        self.cover.push(Cover { text, news: number(news)?, file: file.to_owned() });
        Ok(())
    }

    fn watch(&mut self, value: &str) -> Result<(), String> {
        let bad = || format!("watch={value:?}: expected ID@ADDRESS");
        let (id, address) = value.split_once('@').ok_or_else(bad)?;
        let id = u16::try_from(number(id)?).map_err(|_| bad())?;
        self.watch.push((id, number(address)?));
        Ok(())
    }
}

/// `TSC_KHZ:TIMER_HZ`.
fn pair(text: &str) -> Result<(u64, u64), String> {
    let (tsc, timer) =
        text.split_once(':').ok_or_else(|| format!("clocks={text:?}: expected KHZ:HZ"))?;
    Ok((number(tsc)?, number(timer)?))
}

/// Decimal, or hexadecimal after `0x`.
fn number(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("{text:?} is no number"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_one_name_share_a_class() {
        let args = [
            "out=o",
            "ram=r",
            "range=a:0x1000-0x2000",
            "range=b:8192-12288",
            "range=a:0x9000-0xa000",
            "watch=3@0x1234",
            "words=0x100:2",
            "words=0x200:1",
        ];
        let options = Options::parse(args.into_iter()).expect("valid");
        assert_eq!(options.class(0x1FFF), 1);
        assert_eq!(options.class(0x2000), 2);
        assert_eq!(options.class(0x9000), 1);
        assert_eq!(options.class(0x8000), 0);
        assert_eq!(options.watch, [(3, 0x1234)]);
        assert_eq!(options.words, [0x100, 0x108, 0x200]);
    }

    #[test]
    fn a_text_is_covered_where_nothing_is_counted() {
        let cover = "cover=0x1000-0x1100@0x2000:f";
        let options = Options::parse(["out=o", "ram=r", cover].into_iter()).expect("valid");
        let text = (0x1000, 0x1100);
        assert_eq!(options.cover, [Cover { text, news: 0x2000, file: "f".into() }]);
        let also_counted = ["out=o", "ram=r", cover, "range=a:1-2"];
        assert!(Options::parse(also_counted.into_iter()).is_err());
    }

    #[test]
    fn bad_arguments_are_named() {
        for bad in [
            &["nonsense"][..],
            &[],
            &["out=o", "range=a:1-2"],
            &["out=o", "ram=r", "range=1-2"],
            &["out=o", "words=1:2"],
            &["out=o", "ram=r", "words=1"],
            &["out=o", "cover=1-2@3:f"],
            &["control=s", "ram=r", "range=a:1-2"],
            &["out=o", "ram=r", "cover=2-2@3:f"],
            &["out=o", "ram=r", "cover=1-2@3:"],
        ] {
            assert!(Options::parse(bad.iter().copied()).is_err(), "{bad:?}");
        }
    }
}
