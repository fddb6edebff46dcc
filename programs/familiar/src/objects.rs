//! Objects of the program's own: its use of their capabilities, and calls that are rarely made.

use bulkhead_program::abi::{Code, Kind, Rights, at};
use bulkhead_program::{
    Error, Frame, Maker, Message, Node, Notification, Program, Table, yield_now,
};

/// Tells if all of them do as they say.
pub fn tried(program: Program) -> bool {
    let mut maker = program.maker();
    let tried = [
        ("capabilities", capabilities(&mut maker)),
        ("messages", messages(program, &mut maker)),
        ("threads", threads(&mut maker)),
        ("memory", memory(&mut maker)),
    ];
    yield_now();
    for (what, done) in &tried {
        log::info!("{what}: {done:?}");
    }
    tried.iter().all(|(_, done)| *done == Ok(true))
}

fn is<T>(result: Result<T, Error>, code: Code) -> bool {
    result.err().and_then(Error::code) == Some(code)
}

/// A copy with a badge signals that; moved it still does; revoked it is no more.
fn capabilities(maker: &mut Maker) -> Result<bool, Error> {
    let (all, first, second) = (maker.notification()?, maker.empty()?, maker.empty()?);
    Node::OWN.copy(first, all.0, Rights::WRITE, 4)?;
    Notification(first).signal();
    let signalled = all.wait()?;
    Node::OWN.take(second, first)?;
    Notification(second).signal();
    let moved = all.wait()?;
    let occupied = is(Node::OWN.copy(second, all.0, Rights::ALL, 0), Code::Occupied);
    Node::OWN.revoke(all.0)?;
    let revoked = is(Node::OWN.copy(first, second, Rights::ALL, 0), Code::NoCapability);
    Node::OWN.delete(all.0)?;
    let deleted = is(all.wait_until(0), Code::NoCapability);
    Ok((signalled, moved) == (4, 4) && occupied && revoked && deleted)
}

/// Sent and received in one step: without a receiver, and an earlier signal.
fn messages(program: Program, maker: &mut Maker) -> Result<bool, Error> {
    let (here, there, reply) = (maker.endpoint()?, maker.endpoint()?, maker.reply()?);
    let notification = maker.notification()?;
    let bits = notification.signal_wait(notification)?;
    let main = program.manages("main");
    main.bind_notification(Some(notification))?;
    notification.signal();
    let received = here.try_send_receive(reply, there, Message::new(7, &[1]))?;
    main.bind_notification(None)?;
    Ok(bits == 1 && received.is_notification() && received.badge == 1)
}

fn threads(maker: &mut Maker) -> Result<bool, Error> {
    let (thread, other, handler) = (maker.thread()?, maker.thread()?, maker.endpoint()?);
    let notification = maker.notification()?;
    thread.set_fault(handler)?;
    thread.set_vectors(true)?;
    thread.bind_notification(Some(notification))?;
    let occupied = is(other.bind_notification(Some(notification)), Code::Occupied);
    thread.bind_notification(None)?;
    other.bind_notification(Some(notification))?;
    Ok(occupied)
}

/// A frame is mapped once, and a table where one is missing.
fn memory(maker: &mut Maker) -> Result<bool, Error> {
    // It maps the tables of the first pages.
    maker.page()?;
    let (frame, place) = (Frame(maker.make(Kind::Frame, 12)?), at::OWN + 0x8000);
    frame.map(place, Rights::READ)?;
    let twice = is(frame.map(place + 0x1000, Rights::READ), Code::Occupied);
    frame.unmap()?;
    let (far, table) = (at::OWN + (1 << 21), Table(maker.make(Kind::Table, 0)?));
    let missing = is(frame.map(far, Rights::READ), Code::NoTable);
    table.map(far)?;
    frame.map(far, Rights::READ)?;
    table.unmap()?;
    let gone = is(frame.map(far, Rights::READ), Code::NoTable);
    Ok(twice && missing && gone && frame.physical()? != 0)
}
