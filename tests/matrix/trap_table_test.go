// SPDX-License-Identifier: Apache-2.0

package matrix

const ranges = "tests/matrix.TestEveryFieldOutOfItsRange"

// defects are mistakes of QEMU's device that have no number.
func defects() []trap {
	return []trap{
		{"handles that the driver's tables have no room for", []string{"tests/spine.TestEveryHandleFitsTheGuestsTablesAndTheTablesHaveAnEnd"}},
		{"a request that is passed over without moving the index", []string{"tests/matrix.TestARequestThatBreaksARuleIsOneFailedRequestAndTheQueueGoesOn"}},
		{"an address read from requests that have none", []string{"pvrdma.TestOnlyWhatAnOperationUsesIsRead"}},
		{"every request carried out as a send", []string{"pvrdma.TestOperationsByOwnerAndType", "tests/spine.TestEveryByteOfEveryOperationArrives"}},
		{"a doorbell for a receive ring that a queue pair does not have", []string{"pvrdma.TestAReceiveDoorbellOfAQueuePairWithASharedQueueReachesNoRing", ranges}},
		{"an arm that clears notification", []string{
			"tests/spine.TestAnArmIsOneEventAtTheNextCompletion", "tests/spine.TestASolicitedArmIsAnEventForSolicitedAndFailedCompletionsOnly",
		}},
		{"an event for every completion", []string{"tests/spine.TestAQueueThatWasNotArmedInterruptsNobody", "pvrdma.TestAnUnarmedQueueTouchesNoEventRing"}},
		{"elements of the wrong size in an event ring", []string{"pvrdma/pcifn.TestAsynchronousEventsArriveInOrderRoundTheRing"}},
		{"a table that gives out one handle too many", []string{"tests/matrix.TestATableThatIsFullRefusesOneMore", "pvrdma.TestEveryTableHasALimit"}},
		{"a command's fields read again after they were checked", []string{"tests/fuzz.FuzzCommands", "tests/spine.TestMemoryThatChangesWhileTheDeviceReadsItDoesNoHarm"}},
		{"pages compared with the length by a product of 32 bits", []string{ranges, "tests/spine.TestAMemoryRegionThatLiesIsRefused"}},
		{"a queue longer than its pages, or of a length that is no power of two", []string{ranges}},
		{"an entry of 0 in a directory", []string{ranges, "pvrdma.TestADirectoryThatLiesIsRefused"}},
		{"a directory with more than one table", []string{"pvrdma.TestAPageDirectoryNamesItsPagesInOrder", ranges}},
		{"a region that is not given back whole", []string{"tests/spine.TestConnectionsLeaveNothingBehindInTheDaemon"}},
		{"a queue freed while completions are on their way to it", []string{"pvrdma.TestCommandsUnderTraffic", "tests/spine.TestACompletionQueueIsNotWrittenAfterItWasDestroyed"}},
		{"a link that fails to come up because a command failed before", []string{"tests/spine.TestALinkUpAfterAFailedCommandSucceeds"}},
		{"memory written after a reset", []string{"tests/spine.TestNothingOfAGuestsMemoryChangesAfterItsDeviceWasStopped", "pvrdma/pcifn.TestResetStopsAllAccessBeforeItIsAnswered"}},
		{"the host's structures written in place of the guest's", []string{"pvrdma/abi.TestEveryCodecAgreesWithTheCompiler", "tests/spine.TestAQueryReturnsWhatTheModifiesSet"}},
		{"capabilities that keep what the guest had left there", []string{"pvrdma/pcifn.TestDSRHighFillsTheCapabilitiesBeforeItIsAnswered"}},
		{"more doorbell pages advertised than there are", []string{"pvrdma.TestAllDoorbellPagesButTheKernelsCanBeInUse"}},
		{"an event ring that fails silently", []string{"pvrdma/pcifn.TestARingThatCannotBeMappedFailsActivate"}},
		{"device-written memory mapped for reading", []string{"tests/spine.TestReadOnlyMemoryIsNotWritten"}},
		{"a binding that fails silently", []string{ranges}},
		{"a datagram without a receive that blocks the device", []string{"hostverbs/soft.TestTheEngineKeepsTheContract", "tests/spine.TestAManagementDatagramCompletesAtItsSenderWhoeverGetsIt"}},
		{"addresses remembered by their destination alone", []string{"pvrdma.TestADatagramsAddressIsRead"}},
		{"a state that is kept although the move failed, and moves that do nothing", []string{
			"pvrdma.TestARefusedModifyChangesNothing", "tests/spine.TestErrorStateFlushesAllWorkInOrderSignaledOrNot",
		}},
		{"a failed request that is freed twice", []string{"hostverbs/soft.TestWhateverGuestsDoEveryRequestCompletesOnceAndInOrder"}},
		{"a failed modify that the guest sees as another error", []string{"tests/spine.TestAModifyThatFailsTellsTheGuestEINVALAndChangesNothing"}},
		{"lengths whose sum wraps", []string{
			"tests/spine.TestPiecesWhoseSumDoesNotFitAreRefused", "tests/matrix.TestARequestThatBreaksARuleIsOneFailedRequestAndTheQueueGoesOn",
		}},
	}
}

// channelTraps are those of layouts and of the command channel.
func channelTraps() []trap {
	return []trap{
		{"numbers in the wrong byte order", []string{"pvrdma/abi.TestEveryCodecAgreesWithTheCompiler", "pvrdma/abi.TestImmediateDataPassesThroughUnchanged"}},
		{"padding that the compiler puts elsewhere", []string{"pvrdma/abi.TestEveryStructureAndFieldOfTheHeadersHasACounterpart", "pvrdma/abi.TestA32BitGuestHasTheSameFieldOffsets"}},
		{"a flow label taken for the wire's word", []string{"pvrdma/abi.TestAnAddressVectorsPartsAreFoundInItsWords"}},
		{"an ERR register read before the command has ended", []string{"tests/spine.TestTheReadOfERRComesAfterTheResponseAndItsInterrupt", "pvrdma/pcifn.TestACommandIsExecutedOnceTheRegisterWriteIsAnswered"}},
		{"a command that takes longer than the guest waits", []string{"tests/matrix.TestTheLargestCommandsEndInTime", "pvrdma.TestAContextWithManyRegionsIsDestroyedInFewVisits"}},
		{"an object of a command that the guest gave up on", []string{"pvrdma.TestDestroyingAContextDestroysWhatItLeftBehind", "pvrdma.TestAResetDeviceStartsAnew"}},
		{"two processors that send commands at a time", []string{"tests/spine.TestManyRegisterWritesInOneMessageAreExecutedInOrder"}},
		{"an ERR register that another write has cleared", []string{"pvrdma/pcifn.TestAFailureIsToldAsTheCommandsDriverLooksForIt", "tests/spine.TestAFailedCommandsResponseSaysSoToo"}},
		{"a state taken from the guest's memory of it", []string{"tests/spine.TestAnAttributeOutOfRangeIsRefusedAndTheStateStays", "hostverbs/soft.TestARefusedModifyLeavesEverythingAsItWas"}},
		{"attributes that the mask does not select", []string{ranges, "hostverbs.TestAttributesThatTheMaskDoesNotSelectAreNotLookedAt"}},
		{"objects destroyed in any order", []string{"tests/spine.TestObjectsCanBeDestroyedInAnyOrder", "tests/matrix.TestCommandsInTheWrongOrderAreRefused"}},
	}
}

// ringTraps are those of rings, doorbells and notification.
func ringTraps() []trap {
	return []trap{
		{"an index that is believed, or read back from the guest's memory", []string{
			"pvrdma.TestAnInvalidIndexOfTheGuestEndsTheQueue", "pvrdma/pcifn.TestAnInvalidIndexOfTheGuestEndsARing", "ringbuf.TestIndicesThatNoDriverProducesAreRefused",
		}},
		{"a completion between a poll and the arm behind it", []string{"tests/spine.TestNoWakeUpIsLostBetweenArmAndPoll", "pvrdma.TestAnArmWithUnreadEntriesNotifiesAtOnce"}},
		{"two events for one arm", []string{"pvrdma.TestOneArmGivesOneEvent", "pvrdma.TestAnArmUpgradesASolicitedOneAndNotTheOtherWayRound"}},
		{"an event ring that is full", []string{"tests/spine.TestNotificationsThatFindNoRoomAreKept", "pvrdma/pcifn.TestTheWorkerFlushesWhenTheGuestHasMadeRoom"}},
		{"a storm of POLL words", []string{"pvrdma.TestPollRingsNothing", "pvrdma.TestPollWordsAloneKeepNobodyAwake"}},
		{"a completion queue that overflows", []string{"tests/spine.TestACompletionQueueThatOverflowsIsReportedAndNothingIsOverwritten"}},
		{"a completion that names a queue pair which is gone", []string{"pvrdma.TestAHandleIsGivenAgainOnlyAfterAllOthersWere", "tests/spine.TestAHandleIsNotUsedAgainAtOnce"}},
		{"a completion after its queue pair's end", []string{"tests/spine.TestNothingOfAnObjectsMemoryChangesAfterItWasDestroyed"}},
		{"a doorbell from before a queue pair's RESET", []string{"pvrdma.TestARingIsNotLookedAtBetweenResetAndItsAnswer", "pvrdma.TestResetStartsBothRingsAnew"}},
		{"an index of our own that is not valid", []string{"ringbuf.TestTheDriverReadsWhatTheDeviceWrites", "pvrdma.TestSendsReachTheEngineInOrderRoundTheRing"}},
	}
}

// memoryTraps are those of guest memory, and of what the driver does not check.
func memoryTraps() []trap {
	return []trap{
		{"memory read twice", []string{"tests/spine.TestMemoryThatChangesWhileTheDeviceReadsItDoesNoHarm", "tests/fuzz.FuzzWorkRequests", "tests/fuzz.FuzzSharedRegion"}},
		{"directories that lie, or change", []string{"pvrdma.TestADirectoryThatLiesIsRefused", "pvrdma/pcifn.TestWhatIsWrittenIntoTheRegionLaterIsNotLookedAt", ranges}},
		{"sizes whose product wraps", []string{ranges}},
		{"memory that is unmapped under an object", []string{"guestmem.TestNothingReachesTheMemoryAfterUnmap", "pvrdma.TestAQueueWhoseMemoryIsUnmappedEnds"}},
		{"an address that means something else later", []string{"guestmem.TestUnmapRevokesThePagesThatLieInTheRegionAndNoOthers"}},
		{"DMA without the bus master bit", []string{"tests/matrix.TestNoCommandIsExecutedOutsideOfActive", "guestmem.TestWhileDMAIsOffEveryAccessFails"}},
		{"more bytes written than a structure has", []string{"pvrdma/pcifn.TestAResponseIsAsLongAsTheLargestAndNoLonger", "tests/spine.TestTheDeviceWritesNothingButTheCapabilitiesBeforeItIsActive"}},
		{"dirty pages that nobody reports: such requests are refused", []string{"vfiouser.TestAFrameThatBreaksTheRulesIsRefusedAndChangesNothing"}},
		{"handles, entries and capabilities that the driver believes", []string{"pvrdma.TestACompletionQueueHasTheEntriesAskedFor", "tests/spine.TestTheCapabilitiesAreWhatTheDriverCanBear"}},
		{"queues of a process that are larger than their buffers", []string{ranges, "tests/spine.TestAQueuePairThatLiesIsRefused"}},
		{"strides larger than a page", []string{"pvrdma/abi.TestStridesAreThoseOfTheDriver", "pvrdma.TestTheDriverAcceptsTheCapabilities"}},
		{"work requests that change while they are read", []string{"pvrdma.TestNothingOfAnEarlierRequestIsInALaterOne", "tests/fuzz.FuzzWorkRequests"}},
		{"access flags that no kernel masks", []string{ranges}},
		{"doorbell pages of somebody else", []string{"pvrdma.TestAContextHasADoorbellPageOfItsOwn", ranges}},
	}
}

// privilegeTraps are those between a guest's kernel and its processes.
func privilegeTraps() []trap {
	return []trap{
		{"a process that rings for another's objects", []string{
			"pvrdma.TestAHandleOfAnotherContextIsIgnored", "pvrdma.TestADoorbellOfAnothersObjectDoesNothingAndMovesOneCounter", "tests/spine.TestDoorbellsOfOtherProgramsObjectsDoNothing",
		}},
		{"a process that registers memory by a work request", []string{"pvrdma.TestOperationsByOwnerAndType"}},
		{"a process that uses the key of all memory, or another's key", []string{"tests/matrix.TestAKeyOfAnotherDomainIsNone", "tests/spine.TestTheKeyOfAllMemoryIsNoRemoteKey"}},
		{"a key that is used again at once", []string{"hostverbs/soft.TestAKeyMatchesNothingUntilItsSlotWasUsedOften"}},
		{"a GID of somebody else", []string{"pvrdma.TestAConfiguredListIsAllThatAGuestMayBind", "tests/spine.TestAGIDBelongsToWhoBoundItUntilItIsLetGo"}},
	}
}

// lateTraps are those of writes that nobody waits for, and what verbs asks for and is easily forgotten.
func lateTraps() []trap {
	return []trap{
		{"posted writes that the guest believes done", []string{"pvrdma/pcifn.TestOneRegionIsAlwaysMappable", "pvrdma/pcifn.TestDSRHighFillsTheCapabilitiesBeforeItIsAnswered"}},
		{"a doorbell word that hides another", []string{"pvrdma.TestAWordThatHidesAnotherIsFoundByASweep", "pvrdma.TestNoSleeperIsForgotten"}},
		{"a machine's reset that is none of the driver's", []string{"pvrdma/pcifn.TestTheMachinesResetIsAPowerOn"}},
		{"a doorbell that waits for a command", []string{"pvrdma/pcifn.TestADoorbellIsServedOnce", "tests/spine.TestAStormOfDoorbellsDoesNotDisturbTheOtherGuest"}},
		{"work posted in the error state", []string{"tests/spine.TestErrorStateFlushesAllWorkInOrderSignaledOrNot", "pvrdma.TestRequestsPostedInErrorAreFlushed"}},
		{"a drained queue that nobody hears of", []string{"tests/spine.TestADrainedQueuePairStopsUntilItIsReadyAgain"}},
		{"receives before, and sends too early for, the connection", []string{"tests/spine.TestReceivesPostedBeforeTheConnectionServeIt", "pvrdma.TestRequestsPostedBelowRTSAreServedWhenItIsReached"}},
		{"a completion that is seen before its data, or an interrupt before its completion", []string{"pvrdma.TestAnEventComesAfterItsEntryCanBeSeen", "tests/spine.TestAReceiverWithOnePlaceGetsAllMessages"}},
		{"attributes that nobody enforces", []string{"hostverbs/soft.TestTheEngineKeepsTheContract"}},
		{"buffers that a destroyed queue pair keeps", []string{"pvrdma.TestDestroyingAQueuePairGivesAllBack"}},
		{"messages longer than the port allows", []string{"tests/spine.TestPiecesWhoseSumDoesNotFitAreRefused"}},
		{"atomics that are two steps, or masked", []string{"guestmem.TestNoAdditionIsLostAmongOtherThreadsAndProcessors", "hostverbs/soft.TestTheEngineKeepsTheContract", "pvrdma.TestOperationsByOwnerAndType"}},
		{"a page list that changes after it was read", []string{"pvrdma.TestARegistrationReadsTheListOnceAndGivesItsPages"}},
		{"a queue pair's number taken for its handle", []string{"pvrdma.TestTheResponseNamesNumberAndHandle"}},
	}
}
