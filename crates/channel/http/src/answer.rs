//! Answers: a head, and the page behind it.

use crate::page::{BYTES, Page};
use crate::request::{Method, Refused, Request};
use core::fmt::Write;

/// Bytes of the longest head of an answer.
pub const HEAD: usize = 256;

/// An answer on its way.
#[derive(Debug)]
pub struct Answer {
    head: Text,
    page: Option<Page>,
    at: usize,
    keep: bool,
}

#[derive(Debug)]
struct Text {
    bytes: [u8; HEAD],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        let to = self.bytes.get_mut(self.len..self.len + text.len()).ok_or(core::fmt::Error)?;
        to.copy_from_slice(text.as_bytes());
        self.len += text.len();
        Ok(())
    }
}

impl Answer {
    /// Answers a request with its page, at most on the terms that it asks for: `keep` says if the server would keep the
    /// connection.
    #[must_use]
    pub fn page(request: &Request<'_>, keep: bool) -> Self {
        let keep = keep && request.keep;
        let page = (request.method == Method::Get).then(|| Page::of(request.path));
        Self::new((200, "OK"), "", BYTES, keep, page)
    }

    /// Answers a request for a page that there is not.
    #[must_use]
    pub fn missing(request: &Request<'_>) -> Self {
        Self::new((404, "Not Found"), "", 0, request.keep, None)
    }

    /// Refuses a request. The connection ends then: a body that was not read may follow.
    #[must_use]
    pub fn refused(why: Refused) -> Self {
        let more = if why == Refused::Method { "Allow: GET, HEAD\r\n" } else { "" };
        Self::new(why.status(), more, 0, false, None)
    }

    fn new(
        (code, words): (u16, &str),
        more: &str,
        bytes: usize,
        keep: bool,
        page: Option<Page>,
    ) -> Self {
        let mut head = Text { bytes: [0; HEAD], len: 0 };
        let connection = if keep { "keep-alive" } else { "close" };
        // The longest fits, which a test shows.
        let _ = write!(
            head,
            "HTTP/1.1 {code} {words}\r\nContent-Type: text/plain\r\n{more}Content-Length: {bytes}\r\n\
             Connection: {connection}\r\n\r\n"
        );
        Self { head, page, at: 0, keep }
    }

    /// Writes its next bytes into a buffer. Returns how many; 0: there are no more, or there is no room.
    pub fn write(&mut self, to: &mut [u8]) -> usize {
        let head = self.head.bytes[..self.head.len].get(self.at..).unwrap_or_default();
        let first = head.len().min(to.len());
        to[..first].copy_from_slice(&head[..first]);
        self.at += first;
        let rest = &mut to[first..];
        let Some(page) = self.page.filter(|_| !rest.is_empty()) else { return first };
        let more = page.write(self.at - self.head.len, rest);
        self.at += more;
        first + more
    }

    /// Returns its bytes in all.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        self.head.len + if self.page.is_some() { BYTES } else { 0 }
    }

    /// Tells if all of it was written.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        self.at == self.bytes()
    }

    /// Tells if the connection stays.
    #[must_use]
    pub const fn keeps(&self) -> bool {
        self.keep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(mut answer: Answer, piece: usize) -> Vec<u8> {
        let (mut all, mut some) = (Vec::new(), vec![0; piece]);
        while !answer.is_over() {
            let len = answer.write(&mut some);
            assert!(len > 0);
            all.extend_from_slice(&some[..len]);
        }
        assert_eq!((answer.write(&mut some), answer.bytes()), (0, all.len()));
        all
    }

    #[test]
    fn an_answer_is_its_page_in_any_pieces() {
        let request = Request { method: Method::Get, path: b"/a", keep: true };
        let all = whole(Answer::page(&request, true), 20_000);
        assert_eq!(all, whole(Answer::page(&request, true), 7));
        let body = all.windows(4).position(|end| end == b"\r\n\r\n").expect("a head") + 4;
        let head = core::str::from_utf8(&all[..body]).expect("text");
        assert!(head.contains("Content-Length: 17675\r\n") && head.contains("keep-alive"));
        assert_eq!(all.len() - body, BYTES);
        assert!(all[body..].iter().enumerate().all(|(n, b)| *b == Page::of(b"/a").byte(n)));
        assert!(!Answer::page(&request, false).keeps());
    }

    #[test]
    fn a_head_has_no_page_behind_it() {
        let request = Request { method: Method::Head, path: b"/a", keep: false };
        let all = whole(Answer::page(&request, true), 300);
        assert!(all.ends_with(b"\r\n\r\n"));
        assert!(
            core::str::from_utf8(&all).is_ok_and(|text| text.contains("Content-Length: 17675"))
        );
    }

    #[test]
    fn each_refusal_fits_and_ends_the_connection() {
        for (why, code) in [
            (Refused::Malformed, "400"),
            (Refused::Method, "405"),
            (Refused::Slow, "408"),
            (Refused::Body, "413"),
            (Refused::Long, "431"),
            (Refused::Version, "505"),
        ] {
            let answer = Answer::refused(why);
            assert!(!answer.keeps() && answer.head.len < HEAD);
            let text = String::from_utf8(whole(answer, 1000)).expect("text");
            assert!(
                text.starts_with(&format!("HTTP/1.1 {code} ")) && text.ends_with("close\r\n\r\n")
            );
        }
        let request = Request { method: Method::Get, path: b"/a", keep: true };
        assert!(whole(Answer::missing(&request), 999).starts_with(b"HTTP/1.1 404 "));
    }
}
