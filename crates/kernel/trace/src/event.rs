//! The recorded events and their meaning.

use bulkhead_kernel_abi::Described;

/// Where in a record an event keeps something.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    /// 32 bits: an object's offset in the kernel's memory, or a small number.
    pub a: u32,
    /// As `a`.
    pub b: u32,
    /// 64 bits.
    pub value: u64,
}

macro_rules! word {
    (value) => {
        u64
    };
    ($place:ident) => {
        u32
    };
}

macro_rules! events {
    ($($(#[doc = $doc:literal])* $name:ident = $number:literal {
        $($(#[doc = $meaning:literal])* $field:ident: $place:ident,)*
    })*) => {
        /// An event of the kernel. Objects are named by their offsets in the kernel's memory, 0 is none; times are ns.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Event {
            $($(#[doc = $doc])* $name { $($(#[doc = $meaning])* $field: word!($place),)* },)*
        }

        /// Name, number and meaning of each event.
        pub const EVENTS: &[Described] = &[
            $(Described {
                name: stringify!($name),
                number: $number,
                text: concat!($($doc, "\n",)*),
            },)*
        ];

        impl Event {
            /// Returns its number and its fields.
            #[inline(always)]
            #[must_use]
            pub const fn encode(self) -> (u8, Field) {
                let mut fields = Field { a: 0, b: 0, value: 0 };
                match self {
                    $(Self::$name { $($field,)* } => {
                        $(fields.$place = $field;)*
                        ($number, fields)
                    })*
                }
            }

            /// Returns the event of a number; none that this version knows: `None`.
            #[must_use]
            pub const fn decode(number: u8, fields: Field) -> Option<Self> {
                Some(match number {
                    $($number => Self::$name { $($field: fields.$place,)* },)*
                    _ => return None,
                })
            }
        }
    };
}

events! {
    /// A thread runs from now on; 0 stands for none. `rest` is the rest of its context's refill when the kernel charged
    /// it last.
    Run = 1 {
        /// Thread.
        thread: a,
        /// The context that it runs on, its own or a borrowed one.
        context: b,
        /// Rest of that context's refill, ns.
        rest: value,
    }
    /// A context has left the processor: its thread waits, its budget has ended, or a higher priority has come. It is
    /// charged, and `rest` is the rest of its refill.
    Leave = 2 {
        /// Thread that it was with.
        thread: a,
        /// Context.
        context: b,
        /// Rest of its refill, ns.
        rest: value,
    }
    /// A replenishment: a context that had used up its budget has some again, `rest`. A replenishment while a thread
    /// waits for something else is not told: its next `Run` has it.
    Refill = 3 {
        /// Thread that it is with.
        thread: a,
        /// Context.
        context: b,
        /// The budget that it has, ns.
        rest: value,
    }
    /// A timeout of the first kind: a context's budget has ended while its thread wanted to run. The thread waits
    /// for the refill, unless its timeout handler is called in its name (`handled`).
    Over = 4 {
        /// Thread.
        thread: a,
        /// Context.
        context: b,
        /// 1: there is a handler.
        handled: value,
    }
    /// A timeout of the second kind: the deadline of a wait has come before the message or signal.
    Deadline = 5 {
        /// Thread that waited.
        thread: a,
        /// Its context.
        context: b,
    }
    /// A donation: a thread calls another, and the context that it runs on goes along.
    Donate = 6 {
        /// Thread that calls.
        from: a,
        /// Thread that is called.
        to: b,
        /// Context.
        context: value,
    }
    /// A donation's end: the context goes back to the caller. It does so with the answer, or because no other thread
    /// can use it any more. A context lent by a notification goes to none.
    Return = 7 {
        /// Thread that had it.
        from: a,
        /// Thread that has it again.
        to: b,
        /// Context.
        context: value,
    }
    /// A notification lends its context to a passive thread that takes a signal.
    Lend = 8 {
        /// Notification.
        notification: a,
        /// Thread that works for it.
        to: b,
        /// Context.
        context: value,
    }
    /// A call to a thread that has time of its own: no context goes along.
    Call = 9 {
        /// Thread that calls.
        from: a,
        /// Thread that is called.
        to: b,
    }
    /// The timer's interrupt.
    Timer = 10 {
        /// Thread that was interrupted.
        thread: a,
        /// When it was due, ns of the kernel's clock.
        due: value,
    }
    /// A device's interrupt. With `again` it came before its driver had acknowledged the last one, and is masked at
    /// the device until then.
    Interrupt = 11 {
        /// Number of the interrupt on its core.
        number: a,
        /// Notification that it signals.
        notification: b,
        /// 1: it came again.
        again: value,
    }
    /// An exception of the thread that ran.
    Fault = 12 {
        /// Thread.
        thread: a,
        /// Number of the exception.
        number: b,
        /// Address that was touched, or 0.
        address: value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_event_comes_back() {
        let fields = Field { a: 0x1234_5678, b: 0x9ABC_DEF0, value: 0x1122_3344_5566_7788 };
        for Described { number, name, text } in EVENTS {
            let event = Event::decode(*number as u8, fields).expect("it is listed");
            let (again, kept) = event.encode();
            assert_eq!((u64::from(again), Event::decode(again, kept)), (*number, Some(event)));
            assert!(std::format!("{event:?}").starts_with(name) && !text.is_empty());
        }
        assert_eq!(Event::decode(0, fields), None);
        assert_eq!(Event::decode(EVENTS.len() as u8 + 1, fields), None);
    }

    #[test]
    fn fields_of_an_event_have_places_of_their_own() {
        let event = Event::Donate { from: 1, to: 2, context: 3 };
        assert_eq!(event.encode(), (6, Field { a: 1, b: 2, value: 3 }));
    }
}
