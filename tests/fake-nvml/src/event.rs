use std::ffi::{c_uint, c_ulonglong};
use std::thread;
use std::time::{Duration, Instant};

use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlEventData_t, nvmlEventMigConfigChange, nvmlEventSet_t,
    nvmlEventTypeDoubleBitEccError, nvmlEventTypeXidCriticalError,
    nvmlReturn_enum_NVML_ERROR_TIMEOUT, nvmlReturn_enum_NVML_SUCCESS, nvmlReturn_t,
};

use crate::play::{handle, next_event, with_card};
use crate::write;

/// Time between two looks at the file.
const TICK: Duration = Duration::from_millis(100);

/// There is one set: all sets share their events.
#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetCreate(out: *mut nvmlEventSet_t) -> nvmlReturn_t {
    unsafe { write::value(out, Ok(std::ptr::without_provenance_mut(1))) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlEventSetFree(_set: nvmlEventSet_t) -> nvmlReturn_t {
    nvmlReturn_enum_NVML_SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetSupportedEventTypes(
    device: nvmlDevice_t,
    out: *mut c_ulonglong,
) -> nvmlReturn_t {
    let types =
        nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError | nvmlEventMigConfigChange;
    unsafe { write::value(out, with_card(device, |_, _, _| Ok(types.into()))) }
}

#[unsafe(no_mangle)]
extern "C" fn nvmlDeviceRegisterEvents(
    device: nvmlDevice_t,
    _types: c_ulonglong,
    _set: nvmlEventSet_t,
) -> nvmlReturn_t {
    match with_card(device, |_, _, _| Ok(())) {
        Ok(()) => nvmlReturn_enum_NVML_SUCCESS,
        Err(error) => error,
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlEventSetWait_v2(
    _set: nvmlEventSet_t,
    out: *mut nvmlEventData_t,
    timeout_ms: c_uint,
) -> nvmlReturn_t {
    let end = Instant::now() + Duration::from_millis(timeout_ms.into());
    loop {
        match next_event() {
            Ok(Some(event)) => {
                let data = nvmlEventData_t {
                    device: handle(event.card),
                    eventType: event.kind,
                    eventData: event.data,
                    gpuInstanceId: u32::MAX,
                    computeInstanceId: u32::MAX,
                };
                return unsafe { write::value(out, Ok(data)) };
            }
            Ok(None) => {}
            Err(error) => return error,
        }
        match end.checked_duration_since(Instant::now()) {
            Some(rest) if !rest.is_zero() => thread::sleep(rest.min(TICK)),
            _ => return nvmlReturn_enum_NVML_ERROR_TIMEOUT,
        }
    }
}
