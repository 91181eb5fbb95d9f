"""A certified policy flown: poses in, one policy drawn a flight, yaw out ten times a second.

loop           one flight, from take-off to the ground
preflight      the checks before it
interruptions  signals noted, the garbage collector held off
watching       what ends a flight: lost tracking, a jump, a contact, the fence, the battery
pace           how fast it flies: a certificate is for one speed
settings       the limits of a flight, in one place
pilot          the policy of a flight, drawn from the posterior, and the sensor that it reads
log            what a flight leaves: a row for each step, and a summary
campaign       flights in a folder, their outcomes, and the monitor that weighs them
fields         the obstacles of a flight, read, checked and written
tracking       poses from any tracker, by UDP
drones         what can be asked of a drone
parrot         the Parrot Swing, through PyParrot
kept           a drone in another process, as the loop sees it
keeper         that process, which lands the drone when nobody else does
driver         a third one, which alone talks to the drone, and may hang
channel        messages between them
simulated      a drone and a tracker that are simulated, in another process or in virtual time
world          the physics of it
faults         failures to rehearse
clock          real and virtual time
priority       going before other processes, where the system allows it
stages         all that a flight takes place on, put together

Whatever fails, the drone is told to land. An error in the loop: the loop lands it. The loop late,
stopped or killed: the keeper lands it. The driver hanging or failing: the keeper replaces it and
lands. The keeper killed: the driver lands, and the loop starts another keeper, which lands too.

Nothing is imported here: the keeper and the driver should start at once.
"""
