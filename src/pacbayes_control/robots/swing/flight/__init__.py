"""A certified policy flown: a pose in, a yaw command out, ten times a second.

loop        one flight, from the checks before take-off to the landing
checks      before take-off, of each tracked frame (lost tracking, a jump, a contact, the fence), of
            the speed and of the deadlines
limits      the limits of a flight, in one place, and the drone of a run
log         the files of a flight: a row for each step, and a summary
campaign    flights in a folder, their outcomes, and the monitor of these
session     the flights of one command
stages      the setting of a flight: policy, obstacles, tracker, drone, clock, faults of the loop
tracking    poses from any tracker, by UDP
drones      the interface of a drone
parrot      the Parrot Swing, through PyParrot
kept_drone  a drone in another process, as the loop uses it
keeper      that process, which lands the drone when no other process does
driver      a third process, the only one that talks to the drone, and may hang
processes   how these are started, their messages, their priority
simulated   a simulated drone and tracker, in another process or in virtual time
world       their physics, and the faults that can be rehearsed

The drone is told to land after any failure. An error in the loop: the loop lands it. The loop late,
stopped or killed: the keeper lands it. The driver hanging or failing: the keeper replaces it and
lands. The keeper killed: the driver lands, and the loop starts another keeper, which lands too.

Nothing is imported here, so that the keeper and the driver start at once.
"""
